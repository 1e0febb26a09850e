//! Models fetched from the Hugging Face hub into its local cache.

use crate::error::{Error, Result};
use crate::weights::{self, INDEX, SINGLE};
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};
use std::env;
use std::fs;
use std::path::Path;

/// The hub itself.
const HUB: &str = "https://huggingface.co";

/// Whether the network is not to be asked.
pub(crate) fn is_offline() -> bool {
    let set = env::var("HF_HUB_OFFLINE").unwrap_or_default();
    ["1", "on", "yes", "true"].contains(&set.to_ascii_lowercase().as_str())
}

/// Whether a snapshot of the cache has all that a model needs; weights are fetched last.
pub(crate) fn is_whole(snapshot: &Path) -> bool {
    let index = snapshot.join(INDEX);
    if snapshot.join(SINGLE).is_file() {
        return true;
    }
    if index.is_file() {
        return weights::indexed(snapshot, &index)
            .is_ok_and(|files| files.iter().all(|file| file.is_file()));
    }
    fs::read_dir(snapshot).is_ok_and(|entries| {
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .any(|path| path.extension().is_some_and(|ending| ending == "gguf"))
    })
}

/// Fetches what a model needs of a repository: config.json, tokenizer.json and safetensors, or its only
/// GGUF file.
///
/// # Errors
/// What the hub or the network says, and a repository without such files.
pub(crate) fn fetch(repository: &str, revision: &str, cache: &Path) -> Result<()> {
    let endpoint = env::var("HF_ENDPOINT").ok().filter(|set| !set.is_empty());
    let endpoint = endpoint.unwrap_or_else(|| HUB.into());
    let refused = |found: String| Error::Hub {
        model: repository.to_owned(),
        endpoint: endpoint.clone(),
        found,
    };
    let api = ApiBuilder::from_env()
        .with_endpoint(endpoint.trim_end_matches('/').to_owned())
        .with_cache_dir(cache.to_owned())
        .with_token(token())
        .build()
        .map_err(|error| refused(said(&error, cache)))?;
    let whole = Repo::with_revision(repository.into(), RepoType::Model, revision.into());
    let repo = api.repo(whole);
    let files = repo
        .info()
        .map_err(|error| refused(said(&error, cache)))?
        .siblings;
    let has = |name: &str| files.iter().any(|file| file.rfilename == name);
    let get = |repo: &ApiRepo, name: &str| {
        repo.get(name)
            .map_err(|error| refused(format!("{name}: {}", said(&error, cache))))
    };
    if has("config.json") {
        let config = get(&repo, "config.json")?;
        if has("tokenizer.json") {
            get(&repo, "tokenizer.json")?;
        }
        if has(SINGLE) {
            get(&repo, SINGLE)?;
        } else if has(INDEX) {
            let index = get(&repo, INDEX)?;
            let folder = config.parent().unwrap_or(cache);
            for file in weights::indexed(folder, &index)? {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                get(&repo, &name)?;
            }
        } else {
            return Err(refused(
                "it has no model.safetensors; other formats of weights are not read".into(),
            ));
        }
        return Ok(());
    }
    let ggufs = files.iter().map(|file| file.rfilename.as_str());
    let ggufs: Vec<&str> = ggufs.filter(|name| name.ends_with(".gguf")).collect();
    match ggufs[..] {
        [only] if !only.contains(['/', '\\']) => get(&repo, only).map(|_| ()),
        [] | [_] => Err(refused("it has no config.json and no GGUF file".into())),
        _ => Err(refused(format!(
            "it has {} GGUF files; download one of them and give its path: {}",
            ggufs.len(),
            ggufs.join(", ")
        ))),
    }
}

/// `$HF_TOKEN`, or what logging in has left.
fn token() -> Option<String> {
    let set = env::var("HF_TOKEN").ok().filter(|token| !token.is_empty());
    set.or_else(|| hf_hub::Cache::from_env().token())
}

/// What the hub answered, or why it did not.
fn said(error: &ApiError, cache: &Path) -> String {
    let request = match error {
        ApiError::RequestError(request) => request,
        ApiError::TooManyRetries(last) => return said(last, cache),
        ApiError::LockAcquisition(_) => {
            return "another program is fetching it; wait for that one".into();
        }
        ApiError::IoError(error) => {
            return format!(
                "could not write to the cache {}, which HF_HUB_CACHE or HF_HOME names: {}",
                cache.display(),
                qkv_io::reason(error)
            );
        }
        other => return other.to_string(),
    };
    match request.as_ref() {
        ureq::Error::Status(401 | 403, _) => {
            "access is refused; check the name, and set HF_TOKEN to a token that may read it".into()
        }
        ureq::Error::Status(404, _) => {
            "there is no such model, revision or file; check the name".into()
        }
        ureq::Error::Status(status, _) => {
            format!("it answers with status {status}; try again later")
        }
        ureq::Error::Transport(transport)
            if matches!(
                transport.kind(),
                ureq::ErrorKind::InvalidUrl | ureq::ErrorKind::UnknownScheme
            ) =>
        {
            format!("that is no address such as {HUB}; correct HF_ENDPOINT, or unset it")
        }
        ureq::Error::Transport(transport) => {
            let says = transport.to_string();
            let says = says.split(" (os error").next().unwrap_or_default();
            format!("{says}; is there a network? With HF_HUB_OFFLINE=1 it is not asked")
        }
    }
}
