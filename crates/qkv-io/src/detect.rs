//! What a file is, told from its first bytes.

use std::fmt;

use crate::error::{Error, Result};

/// A file format, read here or only recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Format {
    Npy,
    Npz,
    Safetensors,
    Csv,
    Json,
    Rows,
    Zip,
    TorchZip,
    TorchLegacy,
    Pickle,
    Gguf,
    Ggml,
    Hdf5,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    Lz4,
    SevenZip,
    Rar,
    Png,
    Jpeg,
    Gif,
    Pdf,
    Elf,
    Tar,
    TorchTar,
    Parquet,
    Arrow,
    Matlab,
    Sqlite,
    Tflite,
    Rds,
    LfsPointer,
    Html,
    Xml,
    TorchCut,
}

impl Format {
    /// The format's name, as messages give it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Safetensors => "safetensors",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Rows => "text",
            Format::Zip => "a zip file without npy members",
            Format::TorchZip => "a zip (PyTorch) file",
            Format::TorchLegacy => "a legacy PyTorch (pickle) file",
            Format::Pickle => "a pickle file",
            Format::Gguf => "a GGUF file",
            Format::Ggml => "an old GGML file",
            Format::Hdf5 => "an HDF5 file",
            Format::Gzip => "a gzip file",
            Format::Zstd => "a zstd file",
            Format::Xz => "an xz file",
            Format::Bzip2 => "a bzip2 file",
            Format::Lz4 => "an lz4 file",
            Format::SevenZip => "a 7z file",
            Format::Rar => "a RAR file",
            Format::Png => "a PNG image",
            Format::Jpeg => "a JPEG image",
            Format::Gif => "a GIF image",
            Format::Pdf => "a PDF document",
            Format::Elf => "an ELF program or library",
            Format::Tar => "a tar file",
            Format::TorchTar => "an old PyTorch tar file",
            Format::Parquet => "a Parquet file",
            Format::Arrow => "an Arrow file",
            Format::Matlab => "a MATLAB file",
            Format::Sqlite => "an SQLite database",
            Format::Tflite => "a TensorFlow Lite file",
            Format::Rds => "an R data file",
            Format::LfsPointer => "a git-lfs pointer",
            Format::Html => "an HTML page",
            Format::Xml => "an XML document",
            Format::TorchCut => "a zip (probably PyTorch) file that is cut off",
        }
    }

    /// "a" or "an", before the names of formats that are read.
    pub(crate) fn article(self) -> &'static str {
        match self {
            Format::Npy | Format::Npz => "an",
            _ => "a",
        }
    }

    /// What to do with a file of this format; `FILE` stands for its name.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Format::TorchZip | Format::TorchLegacy | Format::TorchTar => {
                "nothing is unpickled here; convert it where it came from: python -c \"import torch; \
                 from safetensors.torch import save_file; \
                 save_file(torch.load('FILE', weights_only=True), 'FILE.safetensors')\""
            }
            Format::TorchCut => "download or write it again, then convert it to safetensors",
            Format::Pickle => {
                "nothing is unpickled here; load it where it was made and save it with numpy.save \
                 or as safetensors"
            }
            Format::Gguf => {
                "GGUF holds a whole model: give it to a command that takes a model, or dequantise \
                 the tensor with gguf's reader and save it with numpy.save"
            }
            Format::Ggml => "convert it with llama.cpp's scripts to GGUF, or save the array as npy",
            Format::Hdf5 => {
                "python -c \"import h5py, numpy; f = h5py.File('FILE'); \
                 numpy.savez('FILE.npz', **{k: f[k][()] for k in f})\" converts its arrays"
            }
            Format::Gzip => "unpack it first: gunzip -k FILE",
            Format::Zstd => "unpack it first: zstd -d FILE",
            Format::Xz => "unpack it first: xz -dk FILE",
            Format::Bzip2 => "unpack it first: bunzip2 -k FILE",
            Format::Lz4 => "unpack it first: lz4 -d FILE",
            Format::SevenZip | Format::Rar => "unpack it first and give the array in it",
            Format::Zip => "give an npz (numpy.savez), or unpack it and give the array in it",
            Format::Tar => "unpack it first: tar -xf FILE",
            Format::Parquet | Format::Arrow => {
                "save it as csv or npy: pandas.read_parquet('FILE').to_numpy()"
            }
            Format::Matlab => "python: numpy.save('FILE.npy', scipy.io.loadmat('FILE')['NAME'])",
            Format::Tflite => "save the array as npy or safetensors",
            Format::Rds => "in R: write.csv(x, 'FILE.csv', row.names = FALSE)",
            Format::LfsPointer => "the data was not fetched: git lfs pull",
            Format::Html | Format::Xml => {
                "a page was saved in place of the data (a login or an error?): download it again"
            }
            _ => "give an npy, npz, safetensors, csv or json file",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Npy,
    /// An npz, a PyTorch file or another zip: its members decide.
    Zip,
    Safetensors,
    Text,
}

/// Bytes that are enough to tell the format.
pub(crate) const HEAD: usize = 4096;

/// Signatures of formats that are recognised but not read: offset, bytes, format.
const FOREIGN: &[(usize, &[u8], Format)] = &[
    (0, b"GGUF", Format::Gguf),
    (0, b"FUGG", Format::Gguf),
    (0, b"lmgg", Format::Ggml),
    (0, b"fmgg", Format::Ggml),
    (0, b"tjgg", Format::Ggml),
    (0, b"\x89HDF\r\n\x1a\n", Format::Hdf5),
    (0, b"\x1f\x8b", Format::Gzip),
    (0, b"\x28\xb5\x2f\xfd", Format::Zstd),
    (0, b"\xfd7zXZ\0", Format::Xz),
    (0, b"BZh", Format::Bzip2),
    (0, b"\x04\x22\x4d\x18", Format::Lz4),
    (0, b"7z\xbc\xaf\x27\x1c", Format::SevenZip),
    (0, b"Rar!\x1a\x07", Format::Rar),
    (0, b"\x89PNG\r\n\x1a\n", Format::Png),
    (0, b"\xff\xd8\xff", Format::Jpeg),
    (0, b"GIF8", Format::Gif),
    (0, b"%PDF", Format::Pdf),
    (0, b"\x7fELF", Format::Elf),
    (0, b"PAR1", Format::Parquet),
    (0, b"ARROW1", Format::Arrow),
    (0, b"MATLAB 5.0 MAT-file", Format::Matlab),
    (0, b"SQLite format 3\0", Format::Sqlite),
    (4, b"TFL3", Format::Tflite),
    (0, b"RDX2\n", Format::Rds),
    (0, b"RDX3\n", Format::Rds),
    (0, b"version https://git-lfs", Format::LfsPointer),
    (257, b"ustar", Format::Tar),
    // The number that opens the first of a legacy PyTorch file's pickles.
    (
        0,
        b"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
        Format::TorchLegacy,
    ),
    (0, b"\x80\x02", Format::Pickle),
    (0, b"\x80\x03", Format::Pickle),
    (0, b"\x80\x04", Format::Pickle),
    (0, b"\x80\x05", Format::Pickle),
];

/// Tells the format from the first bytes; formats that are not read here are errors.
pub(crate) fn kind(head: &[u8], origin: &str) -> Result<Kind> {
    if head.is_empty() {
        return Err(Error::Empty {
            origin: origin.to_owned(),
        });
    }
    if head.starts_with(crate::npy::MAGIC) {
        return Ok(Kind::Npy);
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Ok(Kind::Zip);
    }
    // Before what is told from two or three bytes, since these may be a length: 0x0480 looks like a
    // pickle.
    if begins_with_header(head) {
        return Ok(Kind::Safetensors);
    }
    for &(offset, magic, format) in FOREIGN {
        if head
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(magic))
        {
            let torch_tar = format == Format::Tar
                && (head.starts_with(b"sys_info") || head.starts_with(b"pickle"));
            let format = if torch_tar { Format::TorchTar } else { format };
            return Err(foreign(origin, format, offset as u64, magic));
        }
    }
    if looks_like_safetensors(head) {
        return Ok(Kind::Safetensors);
    }
    if let Some((encoding, bytes)) = utf16(head) {
        let origin = origin.to_owned();
        return Err(Error::Encoding {
            origin,
            encoding,
            offset: 0,
            bytes: bytes.to_vec(),
        });
    }
    if looks_like_text(head) {
        return markup(head).map_or(Ok(Kind::Text), |format| {
            Err(foreign(origin, format, 0, &head[..head.len().min(8)]))
        });
    }
    Err(Error::Unknown {
        origin: origin.to_owned(),
        bytes: head[..head.len().min(8)].to_vec(),
    })
}

/// The error for a recognised format that is not read.
pub(crate) fn foreign(origin: &str, format: Format, offset: u64, bytes: &[u8]) -> Error {
    let name = origin.to_ascii_lowercase();
    let expected = [
        (".safetensors", "safetensors"),
        (".npy", "npy"),
        (".npz", "npz"),
        (".csv", "csv"),
        (".json", "json"),
    ]
    .iter()
    .find(|(extension, _)| name.ends_with(extension))
    .map_or("npy, npz, safetensors, csv or json", |(_, format)| format);
    // A name that would break out of the command that is printed is left for the reader to put in.
    let plain = |c: char| c.is_alphanumeric() || "._-/\\: ".contains(c);
    let file = if origin.chars().all(plain) {
        origin
    } else {
        "FILE"
    };
    let remedy = format.remedy().replace("FILE", file);
    let bytes = bytes[..bytes.len().min(8)].to_vec();
    Error::Foreign {
        origin: origin.to_owned(),
        format,
        expected,
        offset,
        bytes,
        remedy,
    }
}

/// A length that the format allows, then an opening brace.
fn begins_with_header(head: &[u8]) -> bool {
    head.split_first_chunk::<8>().is_some_and(|(length, rest)| {
        u64::from_le_bytes(*length) <= crate::safetensors::MAX_HEADER && rest.first() == Some(&b'{')
    })
}

/// A plausible header length followed by an opening brace; also a header that is cut off or
/// whose length is damaged, since no text has such bytes.
fn looks_like_safetensors(head: &[u8]) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    let plausible = u64::from_le_bytes(*length) <= crate::safetensors::MAX_HEADER;
    match rest.first() {
        None => plausible,
        Some(b'{') => plausible || !looks_like_text(length) || std::str::from_utf8(length).is_err(),
        Some(_) => false,
    }
}

/// Whether bytes are printable text, up to a character that the end may cut.
fn looks_like_text(head: &[u8]) -> bool {
    head.iter()
        .all(|&b| b >= 0x20 || matches!(b, b'\t' | b'\n' | b'\r' | 0x0c))
}

/// UTF-16, by its byte-order mark or by every second byte being zero.
fn utf16(head: &[u8]) -> Option<(&'static str, &[u8])> {
    let first = &head[..head.len().min(4)];
    if head.starts_with(&[0xff, 0xfe]) {
        return Some(("UTF-16 little-endian", first));
    }
    if head.starts_with(&[0xfe, 0xff]) {
        return Some(("UTF-16 big-endian", first));
    }
    let sample = &head[..head.len().min(64) & !1];
    let (pairs, _) = sample.as_chunks::<2>();
    let text = |b: u8| b != 0 && looks_like_text(&[b]) && b < 0x7f;
    if pairs.len() >= 2 && pairs.iter().all(|[low, high]| text(*low) && *high == 0) {
        return Some(("UTF-16 little-endian", first));
    }
    if pairs.len() >= 2 && pairs.iter().all(|[high, low]| text(*low) && *high == 0) {
        return Some(("UTF-16 big-endian", first));
    }
    None
}

/// HTML and XML, which are text but hold no array.
fn markup(head: &[u8]) -> Option<Format> {
    let text = head
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    let start = text[..text.len().min(15)].to_ascii_lowercase();
    if start.starts_with(b"<!doctype html") || start.starts_with(b"<html") {
        Some(Format::Html)
    } else if start.starts_with(b"<?xml") || start.starts_with(b"<svg") {
        Some(Format::Xml)
    } else if start.starts_with(b"<") {
        Some(Format::Html)
    } else {
        None
    }
}
