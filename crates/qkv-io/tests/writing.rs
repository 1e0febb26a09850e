//! Writing, and reading back what was written.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{bytes, fixtures};
use qkv_io::{
    Array, check_place, read_bytes, read_file, write_arrays, write_file, write_new_file,
    write_safetensors,
};
use std::path::Path;

#[test]
fn arrays_come_back_in_their_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    for name in fixtures() {
        let Ok(array) = read_bytes(&bytes(&name), None, &name) else {
            continue;
        };
        write_arrays(&path, &[("x", &array)], &[("from", &name)]).unwrap();
        let back = read_file(&path, Some("x")).unwrap();
        assert_eq!(
            (back.shape, back.values),
            (array.shape, array.values),
            "{name}"
        );
    }
    let leftovers = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(leftovers, 1, "temporary files stayed behind");
}

#[test]
fn several_arrays_and_notes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let shape: &[usize] = &[1, 2];
    let arrays = [
        ("q", shape, &[1.0, f64::NEG_INFINITY][..]),
        ("none", &[0, 3][..], &[][..]),
    ];
    write_safetensors(&path, &arrays, &[("note", "说明")]).unwrap();
    assert_eq!(read_file(&path, Some("none")).unwrap().shape, [0, 3]);
    assert_eq!(
        read_file(&path, Some("q")).unwrap().to_f64().unwrap()[1],
        f64::NEG_INFINITY
    );
    let file = std::fs::read(&path).unwrap();
    assert!(String::from_utf8_lossy(&file).contains("\"note\":\"说明\""));
}

#[test]
fn wrong_arrays_are_refused_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let one: &[usize] = &[1];
    for (arrays, fact) in [
        (
            vec![("q", &[2, 2][..], &[1.0][..])],
            "of shape [2, 2] was given 1 value;",
        ),
        (
            vec![("q", &[usize::MAX, 2][..], &[1.0][..])],
            "was given 1 value;",
        ),
        (
            vec![("q", one, &[1.0][..]), ("q", one, &[2.0][..])],
            "comes twice",
        ),
        (
            vec![("__metadata__", one, &[1.0][..])],
            "kept for the file's own notes",
        ),
    ] {
        let error = write_safetensors(&path, &arrays, &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains(fact), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn files_are_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.md");
    write_file(&path, b"a long first version").unwrap();
    write_file(&path, b"short").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"short");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// What cannot be written is refused in the same words before and after there is something to write.
#[test]
fn new_files_leave_those_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    // Names with points, without an extension, and one that another process has at the same time.
    for (name, second, third) in [
        ("zen-4.1.jsonl", "zen-4.1-2.jsonl", "zen-4.1-3.jsonl"),
        ("runs", "runs-2", "runs-3"),
    ] {
        let at = |name: &str| folder.path().join(name);
        assert_eq!(write_new_file(&at(name), b"1").unwrap(), at(name));
        std::fs::write(at(second), b"").unwrap();
        assert_eq!(write_new_file(&at(name), b"3").unwrap(), at(third));
        for (name, text) in [(name, "1"), (second, ""), (third, "3")] {
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), text, "{name}");
        }
    }
    let error = write_new_file(&folder.path().join("none/runs"), b"").unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
    let leftovers = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(leftovers, 6, "temporary files stayed behind");
    // Many at once: each gets a name of its own.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| write_new_file(&folder.path().join("at-once"), b"x").unwrap());
        }
    });
    let files = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(files.count(), 6 + 8);
}

#[test]
fn places_that_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_file(&folder.path().join("file"), b"1").unwrap();
    for (place, says) in [
        ("", "is a folder; name a file in it"),
        (
            "no/such/x",
            "no/such; make the folder first, or correct the path",
        ),
        ("no/", "no/; make the folder first"),
        ("no/.", "no/.; make the folder first"),
        ("no/..", "no/..; make the folder first"),
        ("file/x", "a part of the path before its last is a file"),
        ("file/", "file/; make the folder first"),
        (&"x".repeat(300), "too long"),
    ] {
        let path = folder.path().join(place);
        let before = check_place(&path).unwrap_err().to_string();
        let after = write_file(&path, b"x").unwrap_err().to_string();
        assert!(before.contains(says), "{place}: {before}");
        assert_eq!(before, after, "{place}");
    }
    check_place(&folder.path().join("file")).unwrap();
    check_place(&folder.path().join("other")).unwrap();
    check_place(Path::new("/dev/null")).unwrap();
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"1");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Root may write anywhere, so whether the folder lets anything in is tried first.
#[cfg(unix)]
#[test]
fn a_folder_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let open = std::fs::write(folder.path().join("tried"), b"").is_ok();
    let says = match check_place(&path) {
        Ok(()) => "open".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(
        says.contains(if open { "open" } else { "permission is denied" }),
        "{says}"
    );
}

#[cfg(unix)]
#[test]
fn links_permissions_and_devices_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("out.md"), folder.path().join("link.md"));
    write_file(&path, b"1").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write_file(&link, b"2").unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read(&path).unwrap(), b"2");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o640
    );
    // A link to nothing yet stays, too, and one to itself is refused.
    let (new, folder_new) = (
        folder.path().join("new.md"),
        folder.path().join("no/new.md"),
    );
    for (to, from) in [
        ("new.md", "ahead.md"),
        ("no/new.md", "lost.md"),
        ("self.md", "self.md"),
    ] {
        std::os::unix::fs::symlink(to, folder.path().join(from)).unwrap();
    }
    write_file(&folder.path().join("ahead.md"), b"3").unwrap();
    assert_eq!(std::fs::read(&new).unwrap(), b"3");
    for (from, says) in [
        (
            "lost.md",
            format!(
                "could not write {}: there is no folder",
                folder_new.display()
            ),
        ),
        ("self.md", "could not write".to_owned()),
    ] {
        let path = folder.path().join(from);
        let before = check_place(&path).unwrap_err().to_string();
        assert!(before.contains(&says), "{before}");
        assert_eq!(before, write_file(&path, b"4").unwrap_err().to_string());
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }
    write_file(Path::new("/dev/null"), b"3").unwrap();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn threads_that_write_one_file_leave_one_of_their_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    std::thread::scope(|scope| {
        for n in 0..4_u8 {
            let path = &path;
            scope.spawn(move || {
                let values = vec![f64::from(n); 100];
                for _ in 0..5 {
                    write_safetensors(path, &[("x", &[100], &values)], &[]).unwrap();
                }
            });
        }
    });
    let array: Array = read_file(&path, None).unwrap();
    let values = array.to_f64().unwrap();
    assert!(values.iter().all(|&x| x == values[0]));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
