//! What several tests need.
#![allow(dead_code)]

use std::io::Write;
use std::path::PathBuf;

/// A fixture's path.
pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A fixture's bytes.
pub fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// All fixtures that numpy wrote, by name.
pub fn fixtures() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data(""))
        .expect("the folder of fixtures")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| !name.ends_with(".py"))
        .collect();
    names.sort();
    names
}

/// A safetensors file with this header and these bytes.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// A safetensors file of one tensor `x`.
pub fn tensor(dtype: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let header = format!(
        r#"{{"x":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[0,{}]}}}}"#,
        data.len()
    );
    safetensors(&header, data)
}

/// An npy file, version 1, with this dictionary and these bytes.
pub fn npy(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(dictionary.len() as u16).to_le_bytes());
    file.extend_from_slice(dictionary.as_bytes());
    file.extend_from_slice(data);
    file
}

/// A stored or deflated zip of these members.
pub fn zip(members: &[(&str, &[u8])], deflated: bool) -> Vec<u8> {
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};
    let method = if deflated {
        CompressionMethod::Deflated
    } else {
        CompressionMethod::Stored
    };
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).expect("a member");
        writer.write_all(content).expect("its bytes");
    }
    writer.finish().expect("a zip").into_inner()
}

/// Reading fails, and the message names the origin and these facts.
#[track_caller]
pub fn refused(case: &str, file: &[u8], name: Option<&str>, origin: &str, facts: &[&str]) {
    let error = match qkv_io::read_bytes(file, name, origin) {
        Err(error) => error.to_string(),
        Ok(array) => panic!("{case:?} was read as {array:?}"),
    };
    assert!(error.contains(origin), "{case:?} lacks its origin: {error}");
    for fact in facts {
        assert!(error.contains(fact), "{case:?} lacks {fact:?}: {error}");
    }
}
