//! npz, numpy's zip of npy files.

use std::io::{self, BufReader};

use zip::read::ZipFile;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::array::Array;
use crate::detect::{self, Format};
use crate::error::{Entry, Error, Result};
use crate::names;
use crate::npy::Npy;
use crate::shown::shown_within;
use crate::source::{Source, Stream, unreadable};
use crate::zip_directory;

/// Largest member that is inflated.
pub(crate) const MAX_INFLATED: u64 = 4 << 30;

/// Deflate cannot shrink anything by more than this.
const MAX_RATIO: u64 = 1032;

const REMEDY: &str = "download it again, or write it again with numpy.savez";

type Archive<'a, 'b> = ZipArchive<BufReader<&'a mut (dyn Stream + 'b)>>;

/// Reads one member of an npz.
pub(crate) fn read(source: &mut Source<'_>, name: Option<&str>) -> Result<Array> {
    let head = source.read_at(0, detect::HEAD as u64)?;
    source.seek(0)?;
    let (origin, most) = (source.origin, source.most);
    let archive = match ZipArchive::new(BufReader::new(&mut *source.stream)) {
        Ok(archive) => archive,
        Err(_) => return Err(unopened(&head, origin)),
    };
    let files: Vec<(usize, String)> = (0..archive.len())
        .filter_map(|at| Some((at, archive.name_for_index(at)?.ok()?.into_owned())))
        .collect();
    if files
        .iter()
        .any(|(_, file)| file == "data.pkl" || file.ends_with("/data.pkl"))
    {
        return Err(detect::foreign(origin, Format::TorchZip, 0, &head));
    }
    let directory = archive.central_directory_start();
    drop(archive);
    if let Some((name, offset)) = zip_directory::twice(source, directory)? {
        let found = format!("two members are called {}", shown_within(&name, 60));
        let remedy = "write it again with one array of each name (numpy.savez)";
        return Err(source.damaged(Format::Npz, offset, found, remedy));
    }
    source.seek(0)?;
    let Ok(mut archive) = ZipArchive::new(BufReader::new(&mut *source.stream)) else {
        return Err(unopened(&head, origin));
    };
    let members: Vec<(usize, String)> = files
        .iter()
        .filter_map(|(at, file)| Some((*at, file.strip_suffix(".npy")?.to_owned())))
        .collect();
    if members.is_empty() && !archive.is_empty() {
        return Err(detect::foreign(origin, Format::Zip, 0, &head));
    }
    let mut entries: Vec<Entry> = members
        .iter()
        .map(|(_, name)| Entry {
            name: name.clone(),
            shape: None,
        })
        .collect();
    let wanted = name.map(|n| n.strip_suffix(".npy").unwrap_or(n));
    let known = match wanted {
        Some(wanted) => entries.iter().any(|e| e.name == wanted),
        None => entries.len() == 1,
    };
    if !known {
        // The shapes are only wanted for the message.
        for (entry, (at, file)) in entries.iter_mut().zip(&members).take(64) {
            entry.shape = member(&mut archive, (*at, file), (origin, most), |npy| {
                npy.header()
            })
            .ok()
            .map(|header| header.shape);
        }
    }
    let (at, file) = &members[names::choose(origin, Format::Npz, wanted, &entries)?];
    member(&mut archive, (*at, file), (origin, most), |npy| npy.read())
}

/// Does something with one member.
fn member<T>(
    archive: &mut Archive<'_, '_>,
    (at, name): (usize, &str),
    (origin, most): (&str, u64),
    then: impl FnOnce(&mut Npy<'_, ZipFile<'_, BufReader<&mut (dyn Stream + '_)>>>) -> Result<T>,
) -> Result<T> {
    let damaged = |offset, found: String, remedy| Error::Damaged {
        origin: origin.to_owned(),
        format: Format::Npz,
        offset,
        found,
        remedy,
    };
    let stored = archive.by_index_raw(at);
    let header = stored.as_ref().map_or(0, |file| file.header_start());
    let encrypted = stored.as_ref().is_ok_and(|file| file.encrypted());
    let foreign = stored.ok().and_then(|file| method(file.compression()));
    let packed_as = |how: String, remedy| Error::Packed {
        origin: origin.to_owned(),
        name: name.to_owned(),
        offset: header,
        how,
        remedy,
    };
    if encrypted {
        let remedy = "write it without a password (numpy.savez)";
        return Err(packed_as("encrypted".into(), remedy));
    }
    if let Some(method) = foreign {
        let remedy = "that is not read here: write it again with numpy.savez or \
                      numpy.savez_compressed, or unpack it and give the npy in it";
        return Err(packed_as(format!("compressed with {method}"), remedy));
    }
    let file = match archive.by_index(at) {
        Ok(file) => file,
        Err(ZipError::Io(error)) if error.kind() == io::ErrorKind::OutOfMemory => {
            return Err(unreadable(origin, error));
        }
        Err(_) => {
            let found = format!(
                "the entry of member {} contradicts itself",
                shown_within(name, 60)
            );
            return Err(damaged(header, found, REMEDY));
        }
    };
    let (size, packed, start) = (file.size(), file.compressed_size(), file.header_start());
    let possible = packed.saturating_mul(MAX_RATIO).saturating_add(1024);
    if size > possible {
        let name = shown_within(name, 60);
        let found = format!("member {name} claims {size} bytes from {packed} packed ones");
        return Err(damaged(start, found, REMEDY));
    }
    if size > MAX_INFLATED {
        return Err(Error::TooLarge {
            origin: origin.to_owned(),
            what: "a member",
            unit: "byte",
            size: Some(size.into()),
            limit: MAX_INFLATED.into(),
            remedy: "save the array alone as npy",
        });
    }
    let inner = format!("{origin}:{name}");
    let mut npy = Npy {
        stream: file,
        len: size,
        reserve: size.min(packed),
        origin: &inner,
        most,
    };
    then(&mut npy).map_err(|error| match error {
        // A failing checksum or broken deflate stream is damage, not the system's refusal.
        Error::Io { source, .. } if source.to_string().contains("hecksum") => {
            let found = "the checksum does not fit what was unpacked".to_owned();
            damaged(start, found, REMEDY)
        }
        Error::Io { .. } => damaged(
            start,
            "what was packed cannot be unpacked".to_owned(),
            REMEDY,
        ),
        other => other,
    })
}

/// The way of compression, if it is one that is not read.
fn method(compression: CompressionMethod) -> Option<String> {
    #[allow(deprecated)] // the only way to the number of a method that the library does not have
    let CompressionMethod::Unsupported(number) = compression else {
        return None;
    };
    Some(match number {
        1 => "Shrink".into(),
        2..=5 => "Reduce".into(),
        6 => "Implode".into(),
        9 => "Deflate64".into(),
        12 => "bzip2".into(),
        14 => "LZMA".into(),
        20 | 93 => "Zstandard".into(),
        95 => "xz".into(),
        98 => "PPMd".into(),
        number => format!("method {number}"),
    })
}

/// Why a zip could not be opened, as far as its first bytes tell.
fn unopened(head: &[u8], origin: &str) -> Error {
    // PyTorch writes its zips with these flags and its pickle first.
    let torch = head.get(6..8) == Some(&[0x08, 0x08]) || head.windows(8).any(|w| w == b"data.pkl");
    if torch {
        return detect::foreign(origin, Format::TorchCut, 0, head);
    }
    Error::Damaged {
        origin: origin.to_owned(),
        format: Format::Npz,
        offset: 0,
        found: "a zip begins here, but the list of its members, which is its end, is missing or \
                damaged"
            .to_owned(),
        remedy: REMEDY,
    }
}
