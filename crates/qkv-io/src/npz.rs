//! npz, numpy's zip of npy files.

use std::io::BufReader;

use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use crate::array::Array;
use crate::detect::{self, Format};
use crate::error::{Entry, Error, Result};
use crate::names;
use crate::npy::Npy;
use crate::source::{Source, Stream};

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
    let origin = source.origin;
    let mut archive = match ZipArchive::new(BufReader::new(&mut *source.stream)) {
        Ok(archive) => archive,
        Err(error) => return Err(unopened(&head, origin, &error)),
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
            entry.shape = member(&mut archive, *at, file, origin, |npy| npy.header())
                .ok()
                .map(|header| header.shape);
        }
    }
    let (at, file) = &members[names::choose(origin, Format::Npz, wanted, &entries)?];
    member(&mut archive, *at, file, origin, |npy| npy.read())
}

/// Does something with one member.
fn member<T>(
    archive: &mut Archive<'_, '_>,
    at: usize,
    name: &str,
    origin: &str,
    then: impl FnOnce(&mut Npy<'_, ZipFile<'_, BufReader<&mut (dyn Stream + '_)>>>) -> Result<T>,
) -> Result<T> {
    let damaged = |offset, found: String, remedy| Error::Damaged {
        origin: origin.to_owned(),
        format: Format::Npz,
        offset,
        found,
        remedy,
    };
    let file = match archive.by_index(at) {
        Ok(file) => file,
        Err(ZipError::UnsupportedArchive(says)) => {
            let remedy = "write it without encryption, stored or deflated (numpy.savez)";
            return Err(damaged(0, says.to_string(), remedy));
        }
        Err(error) => return Err(damaged(0, error.to_string(), REMEDY)),
    };
    let (size, packed, start) = (file.size(), file.compressed_size(), file.header_start());
    let possible = packed.saturating_mul(MAX_RATIO).saturating_add(1024);
    if size > possible {
        let found = format!("member {name} claims {size} bytes from {packed} packed ones");
        return Err(damaged(start, found, REMEDY));
    }
    if size > MAX_INFLATED {
        return Err(Error::TooLarge {
            origin: origin.to_owned(),
            what: "a member",
            size: size.into(),
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
    };
    then(&mut npy).map_err(|error| match error {
        // A failing checksum or broken deflate stream is damage, not the system's refusal.
        Error::Io { source, .. } => damaged(start, source.to_string(), REMEDY),
        other => other,
    })
}

/// Why a zip could not be opened, as far as its first bytes tell.
fn unopened(head: &[u8], origin: &str, error: &ZipError) -> Error {
    // PyTorch writes its zips with these flags and its pickle first.
    let torch = head.get(6..8) == Some(&[0x08, 0x08]) || head.windows(8).any(|w| w == b"data.pkl");
    if torch {
        return detect::foreign(origin, Format::TorchCut, 0, head);
    }
    Error::Damaged {
        origin: origin.to_owned(),
        format: Format::Npz,
        offset: 0,
        found: format!("a zip begins here but cannot be opened ({error})"),
        remedy: REMEDY,
    }
}
