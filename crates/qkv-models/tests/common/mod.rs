//! The small models of `tests/data`, each in a folder of its own with the tokenizer that they share.

use qkv_models::Batch;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub type Failure = Box<dyn std::error::Error>;

pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A folder with one of the models.
pub fn model(name: &str) -> Result<TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    for file in ["config.json", "model.safetensors"] {
        fs::copy(data().join(name).join(file), folder.path().join(file))?;
    }
    fs::copy(
        data().join("tokenizer.json"),
        folder.path().join("tokenizer.json"),
    )?;
    Ok(folder)
}

/// An array of a file of numbers.
#[allow(dead_code)]
pub fn array(path: &Path, name: &str) -> Result<Vec<f64>, Failure> {
    Ok(qkv_io::read_file(path, Some(name))?.to_f64()?)
}

/// The texts that a model's numbers are about.
#[allow(dead_code)]
pub fn batch(numbers: &Path) -> Result<Batch, Failure> {
    let ids = qkv_io::read_file(numbers, Some("ids"))?;
    let places = ids.shape[1];
    let kept = array(numbers, "kept")?;
    let ids = ids.to_f64()?;
    let mut left = false;
    let texts: Vec<Vec<u32>> = ids
        .chunks(places)
        .zip(kept.chunks(places))
        .map(|(ids, kept)| {
            left |= kept[0] == 0.0;
            let tokens = ids.iter().zip(kept).filter(|(_, kept)| **kept == 1.0);
            tokens.map(|(id, _)| *id as u32).collect()
        })
        .collect();
    let padding = if left {
        qkv_models::Padding::Left
    } else {
        qkv_models::Padding::Right
    };
    // What padding holds must not matter: another token than transformers was given.
    Ok(Batch::new(&texts, padding, 3)?)
}
