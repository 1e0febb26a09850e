//! Writing files so that a reader never sees half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::array::Array;
use crate::bytes;
use crate::encode::{Chunk, Encoded, Encoding, encode};
use crate::error::{Error, Result};

/// Writes bytes (or text) to a file: to a temporary file in the same folder, flushed to the disk,
/// then renamed, so that the file is either the old one or the whole new one.
///
/// What is no regular file, such as `/dev/stdout`, is written to directly.
///
/// # Errors
/// When the system refuses; the temporary file is removed then.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("steps.md");
/// qkv_io::write_file(&path, b"# Steps\n")?;
/// assert_eq!(std::fs::read(&path)?, b"# Steps\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    write_file_with(path, |file| file.write_all(bytes))
}

/// As [`write_file`], with what `write` puts into the file piece by piece.
///
/// # Errors
/// As for [`write_file`], and those of `write`.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("steps.json");
/// qkv_io::write_file_with(&path, |file| file.write_all(b"[1]"))?;
/// assert_eq!(std::fs::read(&path)?, b"[1]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_file_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    stage(path, write)?.finish(path)
}

/// Writes files that belong together, each with the care of [`write_file`]: the first is renamed
/// only when all are written.
///
/// # Errors
/// When the system refuses; no temporary file is left then.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let (sheet, key) = (folder.path().join("s.md"), folder.path().join("s.key.md"));
/// qkv_io::write_files(&[(&sheet, b"1 + 1 = ____\n"), (&key, b"1 + 1 = 2\n")])?;
/// assert_eq!(std::fs::read(&key)?, b"1 + 1 = 2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_files(files: &[(&Path, &[u8])]) -> Result<()> {
    let staged: Result<Vec<_>> = files
        .iter()
        .map(|&(path, bytes)| stage(path, move |file: &mut dyn Write| file.write_all(bytes)))
        .collect();
    let mut staged = staged?.into_iter().zip(files);
    staged.try_for_each(|(staged, (path, _))| staged.finish(path))
}

/// As [`write_file`], but never over a file that is there: the name is then followed by the first
/// number, from 2 on, that none has. Returns the path written to.
///
/// # Errors
/// As for [`write_file`].
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("run.jsonl");
/// assert_eq!(qkv_io::write_new_file(&path, b"1\n")?, path);
/// assert_eq!(qkv_io::write_new_file(&path, b"2\n")?, folder.path().join("run-2.jsonl"));
/// assert_eq!(std::fs::read(&path)?, b"1\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_new_file(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    let temporary = Temporary::write(path, |file| file.write_all(bytes), None)
        .map_err(|source| not_written(path, source))?;
    let mut count = 1;
    loop {
        let target = numbered(path, count);
        match temporary.rename_to_new(&target) {
            Ok(()) => return Ok(target),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => count += 1,
            Err(source) => return Err(not_written(&target, source)),
        }
    }
}

/// `run.jsonl`, then `run-2.jsonl` and so on.
fn numbered(path: &Path, count: u64) -> PathBuf {
    if count == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{count}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Refuses a path that [`write_file`] could not write to, before there is anything to write: an
/// empty file is made beside it, as when it is written, and removed. What is no regular file is not
/// tried.
///
/// # Errors
/// When the folder is not there or may not be written to, when the path is a folder, and whatever
/// else the system refuses.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// qkv_io::check_place(&folder.path().join("out.npy"))?;
/// let error = qkv_io::check_place(&folder.path().join("runs/out.npy")).unwrap_err();
/// assert!(error.to_string().ends_with("make the folder first, or correct the path"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_place(path: &Path) -> Result<()> {
    match place_of(path)? {
        Place::Direct => Ok(()),
        Place::File(target, _) => create_beside(&target)
            .and_then(|(beside, _)| fs::remove_file(beside))
            .map_err(|source| not_written(path, source)),
    }
}

/// What a path names.
enum Place {
    /// A file, there or to be; the permissions are those of the one that is there.
    File(PathBuf, Option<fs::Permissions>),
    /// No regular file: it is written to directly.
    Direct,
}

fn place_of(path: &Path) -> Result<Place> {
    let fail = |source| not_written(path, source);
    match fs::metadata(path) {
        Ok(old) if old.is_dir() => Err(Error::Folder {
            path: path.display().to_string(),
        }),
        Ok(old) if !old.is_file() => Ok(Place::Direct),
        Ok(old) => {
            // Through a symbolic link, the file it names is replaced and the link stays.
            let target = fs::canonicalize(path).map_err(fail)?;
            Ok(Place::File(target, Some(old.permissions())))
        }
        Err(_) if names_a_folder(path) => Err(no_folder(path, path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            // A link to a file that is to be.
            Ok(named) => place_of(&folder_of(path).join(named)),
            Err(_) if !folder_of(path).exists() => Err(no_folder(path, folder_of(path))),
            Err(_) => Ok(Place::File(path.to_owned(), None)),
        },
        // A name that is too long, for one, would be told by the last step only.
        Err(error) => Err(fail(error)),
    }
}

fn no_folder(path: &Path, folder: &Path) -> Error {
    Error::NoFolder {
        path: path.display().to_string(),
        folder: folder.display().to_string(),
    }
}

/// Whether a path ends as only a folder's does: `runs/`, `runs/.` or `runs/..`.
fn names_a_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let last = bytes
        .rsplit(|&byte| std::path::is_separator(byte.into()))
        .next();
    !bytes.is_empty() && matches!(last, Some(b"" | b"." | b".."))
}

/// What waits for the name of its file.
enum Staged<W> {
    Temporary(Temporary),
    /// No regular file: it is written to directly.
    Direct(W),
}

fn stage<W>(path: &Path, write: W) -> Result<Staged<W>>
where
    W: FnOnce(&mut dyn Write) -> io::Result<()>,
{
    match place_of(path)? {
        Place::Direct => Ok(Staged::Direct(write)),
        Place::File(target, permissions) => Temporary::write(&target, write, permissions)
            .map(Staged::Temporary)
            .map_err(|source| not_written(path, source)),
    }
}

impl<W> Staged<W>
where
    W: FnOnce(&mut dyn Write) -> io::Result<()>,
{
    fn finish(self, path: &Path) -> Result<()> {
        let done = match self {
            Staged::Temporary(temporary) => temporary.rename(),
            Staged::Direct(write) => OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|file| through_buffer(&file, write)),
        };
        done.map_err(|source| not_written(path, source))
    }
}

fn not_written(path: &Path, source: io::Error) -> Error {
    Error::Io {
        action: "write",
        path: path.display().to_string(),
        source,
    }
}

fn through_buffer(
    file: &File,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = BufWriter::new(file);
    write(&mut buffer)?;
    buffer.flush()
}

/// A whole file beside its place; removed unless it gets there.
struct Temporary {
    path: PathBuf,
    target: PathBuf,
}

impl Temporary {
    fn write(
        target: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        permissions: Option<fs::Permissions>,
    ) -> io::Result<Temporary> {
        let (path, file) = create_beside(target)?;
        let temporary = Temporary {
            path,
            target: target.to_owned(),
        };
        through_buffer(&file, write)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        Ok(temporary)
    }

    fn rename(self) -> io::Result<()> {
        fs::rename(&self.path, &self.target)?;
        sync_folder(folder_of(&self.target));
        Ok(())
    }

    /// To a name that no file has. A rename would take any: making an empty file is what tells, and
    /// keeps the name, also from another process.
    fn rename_to_new(&self, target: &Path) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(target)?;
        fs::rename(&self.path, target).inspect_err(|_| drop(fs::remove_file(target)))?;
        sync_folder(folder_of(target));
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing to remove; before it, the first error is reported.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder a path lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Creates a file of a new name in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if path.file_name().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no file",
        ));
    }
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let hidden = format!(".qkv-{}-{count}.tmp", std::process::id());
        let temporary = folder_of(path).join(hidden);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the rename itself last through a power cut, where the system allows it.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// Writes named arrays of 64-bit floating-point numbers to one safetensors file, with the care of
/// [`write_file`].
///
/// # Errors
/// When values do not fill their shape, when a name comes twice, or when the system refuses.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("steps.safetensors");
/// qkv_io::write_safetensors(&path, &[("scores", &[1, 2], &[0.5, -1.0])], &[("made-by", "qkv")])?;
/// let array = qkv_io::read_file(&path, Some("scores"))?;
/// assert_eq!((array.shape.clone(), array.to_f64()?), (vec![1, 2], vec![0.5, -1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_safetensors(
    path: &Path,
    arrays: &[(&str, &[usize], &[f64])],
    metadata: &[(&str, &str)],
) -> Result<()> {
    let arrays = arrays
        .iter()
        .map(|&(name, shape, values)| (name, shape, Chunk::F64(values)));
    save(path, arrays.collect(), metadata)
}

/// Writes named arrays, each in its own type, to one safetensors file, with the care of
/// [`write_file`].
///
/// # Errors
/// As for [`write_safetensors`].
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("out.safetensors");
/// let mask = qkv_io::parse_literal("[true, false]")?;
/// qkv_io::write_arrays(&path, &[("mask", &mask)], &[])?;
/// assert_eq!(qkv_io::read_file(&path, None)?.dtype(), "bool");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_arrays(
    path: &Path,
    arrays: &[(&str, &Array)],
    metadata: &[(&str, &str)],
) -> Result<()> {
    let arrays = arrays
        .iter()
        .map(|&(name, array)| (name, &array.shape[..], Chunk::from(&array.values)));
    save(path, arrays.collect(), metadata)
}

fn save(
    path: &Path,
    arrays: Vec<(&str, &[usize], Chunk<'_>)>,
    metadata: &[(&str, &str)],
) -> Result<()> {
    let mut encoded: Vec<Encoded<'_>> = Vec::with_capacity(arrays.len());
    for (name, shape, values) in arrays {
        let refused = |says| {
            Err(Error::Name {
                name: name.to_owned(),
                says,
            })
        };
        if name == "__metadata__" {
            return refused("is kept for the file's own notes");
        }
        if encoded.iter().any(|other| other.name == name) {
            return refused("comes twice");
        }
        if bytes::byte_size(shape, 1) != Some(values.len()) {
            return Err(Error::Shape {
                name: name.to_owned(),
                shape: shape.to_vec(),
                found: values.len(),
            });
        }
        encoded.push(Encoded::whole(name, shape, values));
    }
    let notes: Vec<(&str, Value)> = metadata
        .iter()
        .map(|&(key, value)| (key, value.into()))
        .collect();
    write_file_with(path, |file| {
        encode(file, Encoding::Safetensors, encoded, &notes)
    })
}
