//! Sheets and keys.

#![allow(missing_docs, dead_code, clippy::unwrap_used)]

mod common;

use common::{settings, with_matrices};
use qkv::Block;
use qkv_report::{Lang, exercise};

const IDENTITY: ([f64; 4], [usize; 2]) = ([1.0, 0.0, 0.0, 1.0], [2, 2]);

#[test]
fn the_two_token_example() {
    let v = ([2.0, 0.0, 0.0, 4.0], [2, 2]);
    let matrices = [&IDENTITY, &IDENTITY, &v].map(|(data, shape)| (&data[..], *shape));
    with_matrices(&Block::default(), matrices, |subject| {
        for lang in [Lang::En, Lang::Zh] {
            let made = exercise(subject, &settings(lang, 80), &[]).unwrap();
            assert!(made.sheet.contains("(6) Shape of") || lang == Lang::Zh);
            assert!(made.key.contains("(13) m[0] = max(0.7071, 0) ≈ 0.7071"));
            assert!(!made.sheet.contains("0.6698"));
        }
    });
}
