//! Statistics against numbers worked out by hand.
#![allow(missing_docs, clippy::unwrap_used)]

use qkv_trace::{
    Arrays, By, Error, Facts, HeadsBy, Place, Queries, Source, Survey, Token, strongest, words,
};

fn tokens(texts: &[&str]) -> Vec<Token> {
    texts.iter().map(|text| Token::new(text)).collect()
}

/// One layer, one head, one text.
fn source(texts: &[&str], weights: &[&[f32]]) -> Arrays {
    let keys = texts.len();
    let facts = Facts::of_weights(&[1, 1, weights.len(), keys], vec![tokens(texts)]).unwrap();
    let arrays = Arrays::new(facts).unwrap();
    arrays.with_weights(0, weights.concat()).unwrap()
}

/// "a b a": causal.
fn aba() -> Arrays {
    source(
        &["a", "b", "a"],
        &[&[1.0, 0.0, 0.0], &[0.25, 0.75, 0.0], &[0.5, 0.25, 0.25]],
    )
}

fn mean(source: &mut dyn Source, by: &str) -> (Option<f64>, usize, Option<f64>) {
    let mut heads = HeadsBy::new(vec![By::parse(by).unwrap()], None);
    heads.add(source).unwrap();
    let ranking = heads.rankings().unwrap().remove(0);
    let head = ranking.heads[0];
    (head.mean, head.rows, head.control)
}

#[test]
fn statistics_of_rows() {
    // Rows 1 and 2: 0.25 and 0.25 on the key before; row 2 has 0.5 two before.
    assert_eq!(mean(&mut aba(), "previous"), (Some(0.25), 2, Some(0.5)));
    // Rows 1 and 2 on key 0: 0.25, 0.5; only in row 2 the second key is another's: 0.25.
    assert_eq!(mean(&mut aba(), "first"), (Some(0.375), 2, Some(0.25)));
    assert_eq!(mean(&mut aba(), "own"), (Some(2.0 / 3.0), 3, Some(0.25)));
    // Only row 2 has an earlier token of its own kind: key 0; after it comes key 1.
    assert_eq!(mean(&mut aba(), "same"), (Some(0.5), 1, Some(0.25)));
    assert_eq!(mean(&mut aba(), "induction"), (Some(0.25), 1, Some(0.5)));
}

#[test]
fn a_repeated_token_is_not_what_comes_next() {
    // In "a a" the key after the earlier one is the query's own: no target.
    let mut twice = source(&["a", "a"], &[&[1.0, 0.0], &[0.5, 0.5]]);
    assert_eq!(mean(&mut twice, "induction"), (None, 0, None));
    assert_eq!(mean(&mut twice, "same"), (Some(0.5), 1, None));
}

#[test]
fn ids_tell_the_same_token_where_texts_do_not() {
    let mut facts = Facts::of_weights(&[1, 1, 2, 2], vec![tokens(&["?", "?"])]).unwrap();
    facts.tokens[0][0].id = Some(1);
    facts.tokens[0][1].id = Some(2);
    let arrays = Arrays::new(facts).unwrap();
    let mut arrays = arrays.with_weights(0, vec![1.0, 0.0, 0.5, 0.5]).unwrap();
    assert_eq!(mean(&mut arrays, "same").1, 0);
}

#[test]
fn a_pair_of_words_beside_its_control() {
    let texts = [
        "The", " ani", "mal", " crossed", " the", " road", " and", " it", " slept",
    ];
    let mut row = [0.0_f32; 9];
    (row[0], row[1], row[2]) = (0.2, 0.125, 0.125);
    // The word before has most, then a short one: neither says anything.
    (row[4], row[5], row[6]) = (0.1875, 0.125, 0.2375);
    let mut weights: Vec<Vec<f32>> = (0..9)
        .map(|i| (0..9).map(|j| f32::from(u8::from(i == j))).collect())
        .collect();
    weights[7] = row.to_vec();
    let rows: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
    let mut source = source(&texts, &rows);
    // Both pieces of "animal" count.
    let mut heads = HeadsBy::new(vec![By::parse("it>animal").unwrap()], None);
    heads.add(&mut source).unwrap();
    let ranking = &heads.rankings().unwrap()[0];
    assert_eq!(ranking.control.as_deref(), Some("road"));
    assert_eq!(
        (ranking.heads[0].mean, ranking.heads[0].control),
        (Some(0.25), Some(0.125))
    );
    // Later words get nothing, exactly.
    assert_eq!(mean(&mut source, "it>slept").0, Some(0.0));
    // Capital letters are forgiven, an unknown word is not.
    assert_eq!(mean(&mut source, "IT>Animal").0, Some(0.25));
    let mut heads = HeadsBy::new(vec![By::parse("it>dog").unwrap()], None);
    heads.add(&mut source).unwrap();
    let error = heads.rankings().unwrap_err().to_string();
    assert!(error.contains("\"dog\" among the keys"), "{error}");
    let mut heads = HeadsBy::new(
        vec![By::parse("it>animal").unwrap()],
        Some("crossed".into()),
    );
    heads.add(&mut source).unwrap();
    assert_eq!(heads.rankings().unwrap()[0].heads[0].control, Some(0.0));
}

#[test]
fn averages_over_texts_weigh_rows_alike() {
    let mut heads = HeadsBy::new(vec![By::Previous], None);
    heads.add(&mut aba()).unwrap();
    heads
        .add(&mut source(&["x", "y"], &[&[1.0, 0.0], &[1.0, 0.0]]))
        .unwrap();
    let head = heads.rankings().unwrap()[0].heads[0];
    assert_eq!((heads.texts, head.rows, head.mean), (2, 3, Some(0.5)));
}

#[test]
fn entropy_and_distance() {
    let survey = Survey::of(&mut aba(), 0, false).unwrap();
    let head = survey.heads[0].1;
    // 0; ¼·ln 4 + ¾·ln(4/3); ½·ln 2 + 2·¼·ln 4.
    let right = (0.25 * 4.0_f64.ln() + 0.75 * (4.0 / 3.0_f64).ln() + 1.5 * 2.0_f64.ln()) / 3.0;
    assert!((head.entropy.value().unwrap() - right).abs() < 1e-15);
    // 0; 0.25; 0.5·2 + 0.25.
    assert_eq!(head.distance.value(), Some(0.5));
    assert_eq!(head.first.value(), Some(0.375));
    assert_eq!(head.sums, Some((1.0, 1.0)));
    // Without the first key: rows 1 and 2 are 1 on key 1; ½, ½ on keys 1, 2.
    let survey = Survey::of(&mut aba(), 0, true).unwrap();
    let head = survey.heads[0].1;
    assert!((head.entropy.value().unwrap() - 2.0_f64.ln() / 3.0).abs() < 1e-15);
    assert_eq!(head.distance.value(), Some(0.5 / 3.0));
}

#[test]
fn odd_rows_are_counted() {
    let mut odd = source(
        &["a", "b", "c", "d"],
        &[
            &[0.5, 0.0, 0.0, 0.0],
            &[0.0; 4],
            &[f32::NAN, 0.5, 0.5, 0.0],
            &[0.5, 0.5, 1.5, -0.5],
        ],
    );
    let survey = Survey::of(&mut odd, 0, false).unwrap();
    let head = survey.heads[0].1;
    assert_eq!((head.rows, head.nan_rows, head.empty_rows), (3, 1, 1));
    assert_eq!(head.outside, 2);
    assert_eq!(head.sums, Some((0.5, 2.0)));
    assert_eq!(survey.sums_apart_from_1(), Some((0.5, 2.0)));
    assert!(head.entropy.value().unwrap().is_nan());
    // Of the rows of b, c and d: 0 (dropped), NaN, 0.5.
    let (mean, rows, _) = mean(&mut odd, "first");
    assert!(mean.unwrap().is_nan());
    assert_eq!(rows, 2);
}

#[test]
fn padding_does_not_count() {
    // Two pads in front: the first token is key 2.
    let mut facts = Facts::of_weights(&[1, 1, 4, 4], vec![tokens(&["", "", "a", "b"])]).unwrap();
    facts.tokens[0][0].padding = true;
    facts.tokens[0][1].padding = true;
    let weights = [
        [0.0; 4],
        [0.0; 4],
        [0.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.75, 0.25],
    ];
    let arrays = Arrays::new(facts).unwrap();
    let mut arrays = arrays.with_weights(0, weights.concat()).unwrap();
    assert_eq!(mean(&mut arrays, "first"), (Some(0.75), 1, None));
    assert_eq!(mean(&mut arrays, "previous"), (Some(0.75), 1, None));
    let survey = Survey::of(&mut arrays, 0, false).unwrap();
    assert_eq!(
        (survey.heads[0].1.rows, survey.heads[0].1.empty_rows),
        (2, 0)
    );
}

#[test]
fn queries_of_another_text() {
    let facts = Facts {
        queries: Queries::Elsewhere(vec![tokens(&["le", " chat"])]),
        ..Facts::of_weights(&[1, 1, 2, 3], vec![tokens(&["the", " old", " cat"])]).unwrap()
    };
    let arrays = Arrays::new(facts).unwrap();
    let weights = vec![1.0, 0.0, 0.0, 0.0, 0.25, 0.75];
    let mut arrays = arrays.with_weights(0, weights).unwrap();
    assert_eq!(mean(&mut arrays, "chat>cat"), (Some(0.75), 1, Some(0.25)));
    assert_eq!(mean(&mut arrays, "previous").1, 0);
    let survey = Survey::of(&mut arrays, 0, false).unwrap();
    assert_eq!(survey.heads[0].1.distance.value(), None);
}

#[test]
fn strongest_links() {
    let row = [0.2, f32::NAN, 0.5, 0.2, 0.0];
    let keys: Vec<usize> = strongest(&row, 3).iter().map(|link| link.key).collect();
    assert_eq!(keys, [1, 2, 0]);
    assert_eq!(strongest(&row, 9).len(), 4);
    assert!(strongest(&row, 0).is_empty());
}

#[test]
fn words_of_several_vocabularies() {
    let found = |texts: &[&str]| -> Vec<String> {
        words(&tokens(texts))
            .into_iter()
            .map(|word| word.text)
            .collect()
    };
    assert_eq!(
        found(&["[CLS]", "play", "##ing", "it", "."]),
        ["[CLS]", "playing", "it"]
    );
    assert_eq!(found(&["▁an", "im", "al", "▁it"]), ["animal", "it"]);
    assert_eq!(found(&[" 猫", "追", "狗"]), ["猫", "追", "狗"]);
    assert_eq!(found(&["<bos>", "The", " cat"]), ["<bos>", "The", "cat"]);
}

#[test]
fn facts_that_do_not_fit_are_refused() {
    for (shape, texts, says) in [
        (&[1, 1, 2, 3][..], 2, "2 tokens for weights with 3 keys"),
        (&[1, 1, 4, 3], 3, "4 queries with 3 keys"),
        (&[2, 2], 2, "shape [2, 2]"),
    ] {
        let text = tokens(&vec!["x"; texts]);
        let error = Facts::of_weights(shape, vec![text])
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    let facts = Facts::of_weights(&[1, 4, 1, 1], vec![tokens(&["x"])]).unwrap();
    let odd = Facts {
        kv_heads: 3,
        ..facts.clone()
    };
    assert!(odd.check().is_err());
    assert_eq!(
        Facts {
            kv_heads: 2,
            ..facts.clone()
        }
        .kv_head(3),
        1
    );
    let mut arrays = Arrays::new(facts)
        .unwrap()
        .with_weights(0, vec![1.0; 4])
        .unwrap();
    let place = Place {
        entry: 0,
        layer: 0,
        head: 4,
    };
    let mut out = Vec::new();
    let error = arrays
        .rows(qkv_trace::Kind::Weights, place, 0..1, &mut out)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::NotThere {
                what: "head",
                asked: 4,
                ..
            }
        ),
        "{error}"
    );
}
