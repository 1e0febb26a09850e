//! Attention, hidden states and logits beside those of transformers 5.24.0 (eager, float32; written by
//! `conformance/make-models`), of every family, in batches with padding.
//!
//! `QKV_MODELS=FOLDER` adds models from elsewhere, as `conformance/models` lays them out.

mod common;

use common::{Failure, array, batch, data, model};
use qkv_models::{Batch, Model, Opened, Padding, Recording, open};
use qkv_trace::{Kind, Source};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest difference, relative to the largest number of the row where that is above 1: residuals of
/// some models have single columns of 100,000, whose rounding reaches the others. NaN counts as one.
fn largest(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(1.0_f64, |size, x| size.max(x.abs()));
    let pairs = found.iter().zip(expected);
    let differences = pairs.map(|(found, expected)| (f64::from(*found) - expected).abs() / size);
    differences.fold(0.0, |most, x| if x <= most { most } else { x })
}

struct Differences {
    attention: f64,
    hidden: f64,
}

/// Compares what a model does with the numbers of a file, at places that are no padding.
fn compare(opened: &Arc<Opened>, batch: &Batch, numbers: &Path) -> Result<Differences, Failure> {
    let (entries, places) = (batch.entries(), batch.places());
    let width = opened.model.config().width;
    let kept = |entry: usize, place: usize| batch.kept()[entry][place];
    let mut differences = Differences {
        attention: 0.0,
        hidden: 0.0,
    };
    let states = opened.model.hidden_states(batch)?;
    let expected = array(numbers, "hidden_states")?;
    assert_eq!(expected.len(), states.len() * entries * places * width);
    for (state, expected) in states.iter().zip(expected.chunks(entries * places * width)) {
        let state: Vec<f32> = state.flatten_all()?.to_vec1()?;
        for (at, (state, expected)) in state.chunks(width).zip(expected.chunks(width)).enumerate() {
            if kept(at / places, at % places) {
                differences.hidden = differences.hidden.max(largest(state, expected));
            }
        }
    }
    let mut recording = Recording::new(opened, batch, qkv::Options::default())?;
    let facts = recording.facts().clone();
    let expected = array(numbers, "attentions")?;
    let [heads, layers] = [facts.heads.len(), facts.layers.len()];
    assert_eq!(expected.len(), layers * entries * heads * places * places);
    let mut row = Vec::new();
    for entry in 0..entries {
        for place in facts.places(entry) {
            let first = ((place.layer * entries + entry) * heads + place.head) * places;
            for query in (0..places).filter(|query| kept(entry, *query)) {
                recording.rows(Kind::Weights, place, query..query + 1, &mut row)?;
                let expected = &expected[(first + query) * places..][..places];
                differences.attention = differences.attention.max(largest(&row, expected));
            }
        }
    }
    // Each weight is within 2⁻²³ and each of so many products and sums adds half as much.
    let agreement = recording.agreement();
    let rows: usize = batch.kept().iter().flatten().filter(|kept| **kept).count();
    assert_eq!(agreement.rows, rows * heads * layers);
    Ok(differences)
}

#[test]
fn small_models_of_every_family() -> Result<(), Failure> {
    let mut failed = Vec::new();
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(data())? {
        let path = entry?.path();
        if path.is_dir() {
            names.push(path);
        }
    }
    names.sort();
    assert!(names.len() >= 18);
    for place in names {
        let name = place
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let folder = model(&name)?;
        let opened = Arc::new(open(folder.path()).map_err(|error| format!("{name}: {error}"))?);
        let numbers = place.join("numbers.safetensors");
        let (opened, batch) = match qkv_io::read_file(&numbers, Some("pixel_values")) {
            Ok(pixels) => {
                let numbers: Vec<f32> = pixels.to_f64()?.iter().map(|x| *x as f32).collect();
                let (opened, batch) = opened.image(&numbers, &pixels.shape)?;
                (Arc::new(opened), batch)
            }
            Err(_) => (opened, batch(&numbers)?),
        };
        let found = compare(&opened, &batch, &numbers).map_err(|e| format!("{name}: {e}"))?;
        println!(
            "{name}: attention {:.1e}, hidden {:.1e}",
            found.attention, found.hidden
        );
        // A wrong activation, epsilon or window is above 1e-4 everywhere; rounding, also that of the
        // other side, stays below 1e-6 for weights and 1e-5 for states of three layers.
        if found.attention > 2e-6 || found.hidden > 2e-5 {
            failed.push(format!(
                "{name}: {:.1e}, {:.1e}",
                found.attention, found.hidden
            ));
        }
        if let Ok(logits) = array(&numbers, "logits") {
            let vocabulary = logits.len() / batch.entries();
            let mut recording = Recording::new(&opened, &batch, qkv::Options::default())?;
            for (entry, logits) in logits.chunks(vocabulary).enumerate() {
                let best = (0..vocabulary).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                let (next, share) = recording.next_tokens(entry, 1)?[0];
                let best = best.unwrap_or_default();
                let sum: f64 = logits.iter().map(|x| (x - logits[best]).exp()).sum();
                if next as usize != best || (f64::from(share) - 1.0 / sum).abs() > 1e-5 {
                    failed.push(format!(
                        "{name}: next token {next} {share}, not {best} {}",
                        1.0 / sum
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    Ok(())
}

/// The texts of `s0.npz` and `s1.npz`.
const TEXTS: [(&str, &str); 2] = [
    (
        "s0",
        "The animal didn't cross the street because it was too tired",
    ),
    (
        "s1",
        "When Mary and John went to the store, John gave a drink to",
    ),
];

/// Places whose likeliest next token is another than in a file, and how many there are; none of models
/// without a head, and of files without `argmax_each` and `logits`.
fn other_next_tokens(
    model: &Model,
    batch: &Batch,
    numbers: &Path,
) -> Result<Option<(usize, usize)>, Failure> {
    let each = |logits: &[f64]| -> Vec<usize> {
        let rows = logits.chunks(model.config().vocabulary);
        let best = |row: &[f64]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        rows.map(|row| best(row).unwrap_or_default()).collect()
    };
    let expected = array(numbers, "argmax_each");
    let expected = expected.map(|ids| ids.iter().map(|id| *id as usize).collect::<Vec<_>>());
    let expected = expected.or_else(|_| array(numbers, "logits").map(|logits| each(&logits)));
    let (true, Ok(expected)) = (model.has_head(), expected) else {
        return Ok(None);
    };
    let states = model.hidden_states(batch)?;
    let last = states.last().ok_or("no states")?;
    let logits: Vec<f32> = model.logits(last)?.flatten_all()?.to_vec1()?;
    let found = each(&logits.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    assert_eq!(found.len(), expected.len());
    let other = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
    Ok(Some((other, expected.len())))
}

/// Models from elsewhere: `NAME/*.npz` beside config.json or a GGUF file, each of one text.
#[test]
fn models_from_elsewhere() -> Result<(), Failure> {
    let Some(folder) = std::env::var_os("QKV_MODELS") else {
        return Ok(());
    };
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let folder = entry?.path();
        let mut files = Vec::new();
        for file in std::fs::read_dir(&folder)? {
            files.push(file?.path());
        }
        files.sort();
        let of = |end: &str| -> Vec<&PathBuf> {
            files
                .iter()
                .filter(|f| f.extension().is_some_and(|e| e == end))
                .collect()
        };
        let opened = Arc::new(open(of("gguf").first().copied().unwrap_or(&folder))?);
        for numbers in of("npz") {
            let ids = array(numbers, "input_ids")?;
            let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
            let stem = numbers.file_stem().unwrap_or_default();
            if let Some((_, text)) = TEXTS.iter().find(|(name, _)| stem == *name)
                && opened.tokens.encode(text)? != ids
            {
                failed.push(format!("{}: other tokens", numbers.display()));
            }
            let batch = Batch::new(&[ids], Padding::Right, 0)?;
            let found = compare(&opened, &batch, numbers)?;
            let other = other_next_tokens(&opened.model, &batch, numbers)?;
            let mut says = format!(
                "{}: attention {:.1e}, hidden {:.1e}",
                numbers.display(),
                found.attention,
                found.hidden
            );
            if let Some((other, of)) = other {
                says += &format!(", {other} of {of} next tokens others");
            }
            let right = found.attention <= 2e-5
                && found.hidden <= 2e-5
                && other.is_none_or(|(other, _)| other == 0);
            println!("{says}: {}", if right { "passed" } else { "FAILED" });
            if !right {
                failed.push(says);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    Ok(())
}
