//! Where a model is: a path, or a name of the Hugging Face hub.

use crate::error::{Error, Result};
use crate::hub;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder or GGUF file of a model: a path, or `owner/name` (`owner/name@revision`) of the hub.
///
/// The hub's files are looked for in the local cache, `$HF_HUB_CACHE`, `$HF_HOME/hub` or
/// `~/.cache/huggingface/hub`, and if they are not there, fetched into it from `$HF_ENDPOINT`
/// (<https://huggingface.co>), with a progress bar, unless `$HF_HUB_OFFLINE` is set.
///
/// # Errors
/// Says where it was looked for; of several GGUF files, one has to be named as a path.
pub fn find(name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    match path.try_exists() {
        Ok(true) => return Ok(path.to_owned()),
        // A name of the hub may begin as a file here is called.
        Err(error) if error.kind() != ErrorKind::NotADirectory => {
            return Err(Error::io(path, error));
        }
        _ => {}
    }
    let mut looked = vec![format!("the path {name}")];
    if let Some((repository, revision)) = of_hub(name)
        && let Some(cache) = cache()
    {
        let folder = cache.join(format!("models--{}", repository.replace('/', "--")));
        looked.push(folder.display().to_string());
        match snapshot(&folder, revision) {
            Some(snapshot) if hub::is_whole(&snapshot) => return in_snapshot(&snapshot),
            // What a broken download left is told by whoever opens it.
            Some(snapshot) if hub::is_offline() => return in_snapshot(&snapshot),
            None if hub::is_offline() => {
                looked.push("not the hub, since HF_HUB_OFFLINE is set".into())
            }
            _ => {
                hub::fetch(repository, revision, &cache)?;
                if let Some(snapshot) = snapshot(&folder, revision) {
                    return in_snapshot(&snapshot);
                }
            }
        }
    }
    Err(Error::NotFound {
        model: name.to_owned(),
        looked,
    })
}

/// `owner/name` or `name`, with its revision; `None` for what cannot be a name of the hub, or has the
/// ending of a file and is more likely a path that is not there.
fn of_hub(name: &str) -> Option<(&str, &str)> {
    let (repository, revision) = name.split_once('@').unwrap_or((name, "main"));
    let plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && part.chars().all(known) && !part.starts_with('.')
    };
    let parts: Vec<&str> = repository.split('/').collect();
    let ending = Path::new(name).extension().unwrap_or_default();
    let is_file = ["gguf", "safetensors", "json", "bin", "pt", "npz", "npy"].map(OsStr::new);
    let fits = !is_file.contains(&ending)
        && parts.len() <= 2
        && parts.into_iter().all(plain)
        && revision.split('/').all(plain);
    fits.then_some((repository, revision))
}

fn cache() -> Option<PathBuf> {
    let of = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = || {
        of("HF_HOME").or_else(|| {
            let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
            cache.map(|cache| cache.join("huggingface"))
        })
    };
    of("HF_HUB_CACHE")
        .or_else(|| of("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| home().map(|home| home.join("hub")))
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
