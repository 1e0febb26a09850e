//! What a recording gives: rows that belong together, steps stitched to one map, padding that changes
//! nothing.

mod common;

use common::{Failure, model};
use qkv_models::{Batch, Padding, Recording, open};
use qkv_trace::{Kind, Place, Source, Stage};
use std::sync::Arc;

/// Everything of one kind of a layer's head.
fn all(recording: &mut Recording, kind: Kind, place: Place) -> Result<Vec<f32>, Failure> {
    let rows = recording.facts().rows_of(kind);
    let mut out = Vec::new();
    recording.rows(kind, place, 0..rows, &mut out)?;
    assert_eq!(out.len(), rows * recording.facts().width(kind));
    Ok(out)
}

#[track_caller]
fn near(a: &[f32], b: &[f32], most: f32) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        let same = a == b || (a - b).abs() <= most;
        assert!(same, "{a} is not {b}");
    }
}

/// Weights and states of three layers in single precision.
const NEAR: f32 = 2e-5;

#[test]
fn generated_steps_are_the_rows_of_a_full_run() -> Result<(), Failure> {
    for name in ["llama-llama3", "gpt2", "gemma3", "mistral"] {
        let folder = model(name)?;
        let opened = Arc::new(open(folder.path())?);
        let texts = [
            opened.tokens.encode("the animal was too tired")?,
            vec![5, 6, 7],
        ];
        let batch = Batch::new(&texts, Padding::Left, 0)?;
        let options = qkv::Options::default();
        let mut steps = Recording::generate(&opened, &batch, 4, options)?;
        let places = batch.places() + 4;
        assert_eq!(steps.facts().keys(), places);
        // The continued texts at once.
        let ids = steps.facts().tokens.clone();
        let texts: Vec<Vec<u32>> = ids
            .iter()
            .map(|text| {
                text.iter()
                    .filter(|t| !t.padding)
                    .filter_map(|t| t.id)
                    .collect()
            })
            .collect();
        assert_eq!(texts[0].len(), places);
        let whole = Batch::new(&texts, Padding::Left, 0)?;
        let mut once = Recording::new(&opened, &whole, options)?;
        for entry in 0..2 {
            let first = places - texts[entry].len();
            for place in once.facts().clone().places(entry) {
                for kind in [Kind::Weights, Kind::Z, Kind::Q] {
                    let width = once.facts().width(kind);
                    let [a, b] = [all(&mut steps, kind, place)?, all(&mut once, kind, place)?];
                    near(&a[first * width..], &b[first * width..], NEAR);
                }
            }
        }
        assert_eq!(steps.next_tokens(0, 3)?[0].0, once.next_tokens(0, 3)?[0].0);
        let agreement = steps.agreement();
        assert!(agreement.largest < NEAR && agreement.rows > 0);
    }
    Ok(())
}

#[test]
fn a_text_alone_and_among_others() -> Result<(), Failure> {
    for (name, padding) in [
        ("llama-yarn", Padding::Left),
        ("llama-yarn", Padding::Right),
        ("gpt2", Padding::Left),
        ("roberta", Padding::Right),
        ("roberta", Padding::Left),
        ("modernbert", Padding::Right),
    ] {
        let folder = model(name)?;
        let opened = Arc::new(open(folder.path())?);
        let short = vec![5, 6, 7, 8, 9, 10, 11, 12, 13];
        let long: Vec<u32> = (20..35).collect();
        let options = qkv::Options::default();
        let batch = Batch::new(&[long, short.clone()], padding, 1)?;
        let mut among = Recording::new(&opened, &batch, options)?;
        let mut alone = Recording::new(
            &opened,
            &Batch::new(std::slice::from_ref(&short), padding, 1)?,
            options,
        )?;
        let first = match padding {
            Padding::Left => 15 - short.len(),
            Padding::Right => 0,
        };
        for place in alone.facts().clone().places(0) {
            let a = all(&mut alone, Kind::Weights, place)?;
            let b = all(&mut among, Kind::Weights, Place { entry: 1, ..place })?;
            for query in 0..short.len() {
                let row = &b[(first + query) * 15..][..15];
                near(&a[query * 9..][..9], &row[first..first + 9], NEAR);
                let outside = row
                    .iter()
                    .enumerate()
                    .filter(|(j, _)| !(first..first + 9).contains(j));
                assert!(
                    outside.into_iter().all(|(_, weight)| *weight == 0.0),
                    "{name}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn kinds_belong_together() -> Result<(), Failure> {
    let folder = model("qwen3")?;
    let opened = Arc::new(open(folder.path())?);
    let batch = Batch::new(&[(30..42).collect()], Padding::Right, 0)?;
    let mut recording = Recording::new(&opened, &batch, qkv::Options::default())?;
    let facts = recording.facts().clone();
    assert_eq!(
        (facts.heads.len(), facts.kv_heads, facts.head_dim),
        (4, 2, 16)
    );
    assert!(recording.has(Kind::RotatedQ, 0) && !recording.has(Kind::Q, 3));
    // Back and forth between layers: an earlier layer runs again, to the same bits.
    let place = Place {
        entry: 0,
        layer: 0,
        head: 3,
    };
    let first = all(&mut recording, Kind::Weights, place)?;
    all(&mut recording, Kind::Weights, Place { layer: 2, ..place })?;
    assert_eq!(first, all(&mut recording, Kind::Weights, place)?);
    let q = all(&mut recording, Kind::RotatedQ, place)?;
    let k = all(&mut recording, Kind::RotatedK, Place { head: 1, ..place })?;
    let scores = all(&mut recording, Kind::Scores, place)?;
    for i in 0..12 {
        for j in 0..12 {
            let dot: f32 = (0..16).map(|d| q[i * 16 + d] * k[j * 16 + d]).sum();
            let expected = if j <= i {
                dot * 0.25
            } else {
                f32::NEG_INFINITY
            };
            near(&[scores[i * 12 + j]], &[expected], 1e-4);
        }
        let sum: f32 = first[i * 12..][..12].iter().sum();
        near(&[sum], &[1.0], 1e-6);
    }
    // The residual is what the model's hidden states are, and its size that of its rows.
    let states = opened.model.hidden_states(&batch)?;
    let stages = [
        Stage::Into(0),
        Stage::Into(1),
        Stage::OutOf(1),
        Stage::Normed,
    ];
    for (stage, state) in stages.into_iter().zip([0, 1, 2, 3]) {
        let state: Vec<f32> = states[state].flatten_all()?.to_vec1()?;
        let mut residual = Vec::new();
        recording.residual(stage, 0, 0..12, &mut residual)?;
        assert_eq!(residual, state);
        let mut norms = Vec::new();
        recording.residual_norms(stage, 0, 2..12, &mut norms)?;
        let width = recording.residual_width(stage).ok_or("a width")?;
        for (norm, row) in norms.iter().zip(state.chunks(width).skip(2)) {
            let sum: f32 = row.iter().map(|x| x * x).sum();
            near(&[*norm], &[sum.sqrt()], 1e-4 * norm);
        }
    }
    assert_eq!(recording.residual_width(Stage::Into(3)), None);
    let beyond = recording.residual(Stage::Into(3), 0, 0..1, &mut Vec::new());
    assert!(beyond.is_err());
    // Rows that are not there.
    let mut out = Vec::new();
    assert!(
        recording
            .rows(Kind::Weights, place, 0..13, &mut out)
            .is_err()
    );
    let layer = Place { layer: 3, ..place };
    assert!(
        recording
            .rows(Kind::Weights, layer, 0..1, &mut out)
            .is_err()
    );
    Ok(())
}

#[test]
fn texts_that_cannot_be() -> Result<(), Failure> {
    let folder = model("gpt2")?;
    let opened = Arc::new(open(folder.path())?);
    let options = qkv::Options::default();
    let error = |batch: Batch| {
        Recording::new(&opened, &batch, options)
            .err()
            .map(|e| e.to_string())
    };
    let unknown = error(Batch::new(&[vec![290]], Padding::Left, 0)?).unwrap_or_default();
    assert!(unknown.contains("290"), "{unknown}");
    let long = error(Batch::new(&[vec![1; 65]], Padding::Left, 0)?).unwrap_or_default();
    assert!(long.contains("65 tokens") && long.contains("64"), "{long}");
    // Padding needs no position.
    assert!(Batch::new(&[vec![]], Padding::Left, 0).is_err());
    let mut texts = vec![vec![1; 64]];
    texts.push(vec![2; 3]);
    assert_eq!(error(Batch::new(&texts, Padding::Right, 0)?), None);
    Ok(())
}
