//! Where a model is: a path, or a name of the Hugging Face hub whose files lie in the local cache.

use crate::error::{Error, Result};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder or GGUF file of a model: a path, or `owner/name` (`owner/name@revision`) of the hub in the
/// local cache, `$HF_HUB_CACHE`, `$HF_HOME/hub` or `~/.cache/huggingface/hub`.
///
/// # Errors
/// Says where it was looked for; of several GGUF files in the cache, one has to be named as a path.
pub fn find(name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.exists() {
        return Ok(path.to_owned());
    }
    let mut looked = vec![format!("the path {name}")];
    if let Some((repository, revision)) = of_hub(name) {
        for cache in caches() {
            let folder = cache.join(format!("models--{}", repository.replace('/', "--")));
            looked.push(folder.display().to_string());
            if let Some(snapshot) = snapshot(&folder, revision) {
                return in_snapshot(&snapshot);
            }
        }
    }
    Err(Error::NotFound {
        model: name.to_owned(),
        looked,
    })
}

/// `owner/name` or `name`, with its revision; `None` for what cannot be a name of the hub.
fn of_hub(name: &str) -> Option<(&str, &str)> {
    let (repository, revision) = name.split_once('@').unwrap_or((name, "main"));
    let plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && part.chars().all(known) && !part.starts_with('.')
    };
    let parts: Vec<&str> = repository.split('/').collect();
    let fits = parts.len() <= 2 && parts.into_iter().all(plain) && revision.split('/').all(plain);
    fits.then_some((repository, revision))
}

fn caches() -> Vec<PathBuf> {
    let of = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(cache) = of("HF_HUB_CACHE").or_else(|| of("HUGGINGFACE_HUB_CACHE")) {
        return vec![cache];
    }
    let home = of("HF_HOME").or_else(|| {
        let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        cache.map(|cache| cache.join("huggingface"))
    });
    home.into_iter().map(|home| home.join("hub")).collect()
}

/// The files of a revision: a branch or tag by its name, or a commit.
fn snapshot(folder: &Path, revision: &str) -> Option<PathBuf> {
    let commit = fs::read_to_string(folder.join("refs").join(revision));
    let commit = commit.unwrap_or_else(|_| revision.to_owned());
    let snapshot = folder.join("snapshots").join(commit.trim());
    snapshot.is_dir().then_some(snapshot)
}

/// The folder itself, or its only GGUF file.
fn in_snapshot(folder: &Path) -> Result<PathBuf> {
    if folder.join("config.json").is_file() {
        return Ok(folder.to_owned());
    }
    let entries = fs::read_dir(folder).map_err(|error| Error::io(folder, error))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "gguf"))
        .collect();
    files.sort();
    match &files[..] {
        [] => Ok(folder.to_owned()),
        [only] => Ok(only.clone()),
        several => Err(Error::Damaged {
            path: folder.display().to_string(),
            found: format!(
                "{} GGUF files are there, such as {}",
                several.len(),
                several[0].display()
            ),
            remedy: "give the path of one of them",
        }),
    }
}
