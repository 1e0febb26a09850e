//! Models fetched from a hub: a server on loopback that speaks as the hub does.
#![cfg(feature = "models")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{fs, thread};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server has, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// A hub with one repository, and the paths that it was asked for.
struct Hub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    /// `cut` bytes are missing from the end of the weights, though their number is said.
    fn new(files: Files, cut: usize) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its number"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &files, cut, &log);
            }
        });
        Hub { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

fn answer(
    mut stream: TcpStream,
    files: &Files,
    cut: usize,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut range = None;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        range = range.or_else(|| Some(line.strip_prefix("range: bytes=")?.to_owned()));
    }
    log.lock().expect("no panic").push(path.clone());
    let (status, headers, body) = if path == "/api/models/some/model/revision/main" {
        let names: Vec<String> = files
            .keys()
            .map(|name| format!("{{\"rfilename\": \"{name}\"}}"))
            .collect();
        let body = format!(
            "{{\"siblings\": [{}], \"sha\": \"{COMMIT}\"}}",
            names.join(", ")
        );
        ("200 OK", String::new(), body.into_bytes())
    } else if let Some(file) = path
        .strip_prefix("/some/model/resolve/main/")
        .and_then(|name| files.get_key_value(name))
    {
        let (name, bytes) = file;
        let (from, to) = range
            .as_deref()
            .unwrap_or("0-")
            .split_once('-')
            .unwrap_or_default();
        let from: usize = from.parse().unwrap_or(0);
        let to = to.parse().map_or(bytes.len(), |last: usize| last + 1);
        let body = &bytes[from..to];
        let headers = format!(
            "etag: \"of-{}\"\r\nx-repo-commit: {COMMIT}\r\ncontent-range: bytes {from}-{}/{}\r\n",
            name.replace('.', "-"),
            to - 1,
            bytes.len()
        );
        ("206 Partial Content", headers, body.to_vec())
    } else if path.contains("/private/") {
        ("401 Unauthorized", String::new(), Vec::new())
    } else {
        ("404 Not Found", String::new(), Vec::new())
    };
    let length = body.len();
    let is_whole = length <= 1 || !path.ends_with("model.safetensors");
    let sent = if is_whole { length } else { length - cut };
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    )?;
    stream.write_all(&body[..sent])
}

fn data(file: &str) -> Vec<u8> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qkv-models/tests/data");
    fs::read(data.join(file)).expect("a file of the tests")
}

fn files() -> Files {
    BTreeMap::from([
        ("config.json".into(), data("gpt2/config.json")),
        ("model.safetensors".into(), data("gpt2/model.safetensors")),
        ("pytorch_model.bin".into(), b"not wanted".to_vec()),
        ("tokenizer.json".into(), data("tokenizer.json")),
    ])
}

fn trace(hub: &Hub, cache: &Path, name: &str, offline: &str) -> (Option<i32>, String, String) {
    let output = common::command(cache)
        .env("HF_HUB_CACHE", cache)
        .env("HF_ENDPOINT", &hub.address)
        .env("HF_HUB_OFFLINE", offline)
        .env_remove("HF_TOKEN")
        .args([
            "trace", name, "it was", "--layer", "0", "--head", "0", "--json",
        ])
        .output()
        .expect("the command ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn fetched_once_and_then_from_the_cache() {
    let cache = tempfile::tempdir().expect("a folder");
    let hub = Hub::new(files(), 0);
    let (code, out, err) = trace(&hub, cache.path(), "some/model", "");
    assert_eq!(code, Some(0), "{err}");
    let asked = hub.asked();
    assert!(asked.iter().any(|path| path.ends_with("model.safetensors")));
    assert!(
        !asked.iter().any(|path| path.ends_with(".bin")),
        "{asked:?}"
    );
    for offline in ["", "1"] {
        let (code, again, err) = trace(&hub, cache.path(), "some/model", offline);
        assert_eq!((code, again), (Some(0), out.clone()), "{err}");
    }
    assert_eq!(hub.asked(), asked);
}

#[test]
fn offline_the_network_is_not_asked() {
    let cache = tempfile::tempdir().expect("a folder");
    let hub = Hub::new(files(), 0);
    let (code, _, err) = trace(&hub, cache.path(), "some/model", "1");
    assert_eq!(code, Some(2));
    assert!(err.contains("HF_HUB_OFFLINE"), "{err}");
    assert!(hub.asked().is_empty());
}

#[test]
fn a_path_that_is_not_there_is_no_name_of_the_hub() {
    let cache = tempfile::tempdir().expect("a folder");
    let hub = Hub::new(files(), 0);
    for name in [
        "models/absent.gguf",
        "absent.safetensors",
        "../some/model",
        "/some/model",
    ] {
        let (code, _, err) = trace(&hub, cache.path(), name, "");
        assert_eq!(code, Some(2));
        assert!(err.contains(name), "{err}");
    }
    assert!(hub.asked().is_empty(), "{:?}", hub.asked());
}

#[test]
fn refusals_of_the_hub() {
    let hub = Hub::new(files(), 0);
    let two_ggufs = ["a.gguf", "b.gguf"].map(|name| (name.to_owned(), b"GGUF".to_vec()));
    let empty = Hub::new(Files::from([("README.md".to_owned(), vec![b'x'; 9])]), 0);
    let several = Hub::new(Files::from(two_ggufs), 0);
    let pickled = Files::from(
        ["config.json", "pytorch_model.bin"]
            .map(|name| (name.to_owned(), data("gpt2/config.json"))),
    );
    let pickled = Hub::new(pickled, 0);
    let away = Hub {
        address: "http://127.0.0.1:9".into(),
        asked: Arc::default(),
    };
    let nowhere = Hub {
        address: "nonsense".into(),
        asked: Arc::default(),
    };
    for (hub, name, says) in [
        (&hub, "some/other", "no such model"),
        (&hub, "some/private/model", "no such model"),
        (&hub, "private/model", "access is refused"),
        (&empty, "some/model", "no config.json and no GGUF"),
        (&several, "some/model", "a.gguf, b.gguf"),
        (&pickled, "some/model", "no model.safetensors"),
        (&away, "some/model", "refused; is there a network?"),
        (
            &nowhere,
            "some/model",
            "not fetched from nonsense: that is no address such as https://",
        ),
    ] {
        let cache = tempfile::tempdir().expect("a folder");
        let (code, out, err) = trace(hub, cache.path(), name, "");
        assert_eq!((code, out.as_str()), (Some(2), ""), "{name}: {err}");
        assert!(err.contains(says), "{name}: {err}");
    }
}

#[test]
fn a_cache_that_cannot_be_written_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let hub = Hub::new(files(), 0);
    let output = common::command(folder.path())
        .env("HF_HUB_CACHE", file.join("hub"))
        .env("HF_ENDPOINT", &hub.address)
        .env("HF_HUB_OFFLINE", "")
        .args(["trace", "some/model", "it was"])
        .output()
        .expect("the command ends");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{err}");
    for word in [
        "could not write to the cache",
        "file/hub",
        "HF_HUB_CACHE",
        "is a file, not a folder",
    ] {
        assert!(err.contains(word), "{word:?} is missing in {err}");
    }
    assert!(!err.contains("os error"), "{err}");
}

#[test]
fn a_download_that_breaks_off_leaves_no_model() {
    let cache = tempfile::tempdir().expect("a folder");
    let broken = Hub::new(files(), 100);
    let (code, _, err) = trace(&broken, cache.path(), "some/model", "");
    assert_eq!(code, Some(2), "{err}");
    let whole = Hub::new(files(), 0);
    let (code, _, err) = trace(&whole, cache.path(), "some/model", "");
    assert_eq!(code, Some(0), "{err}");
}
