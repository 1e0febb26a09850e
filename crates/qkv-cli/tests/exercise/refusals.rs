//! Sheets that are refused, and files that are left alone.

use super::common::qkv;
use super::run_in;
use std::fs;

#[test]
fn two_files_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = || {
        let entries = fs::read_dir(folder.path()).expect("the folder");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    };
    // The key would be a folder.
    fs::create_dir(folder.path().join("s.key.md")).expect("a folder");
    let ran = run_in(folder.path(), "--exercise -o s.md");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("s.key.md"), "{}", ran.err);
    assert_eq!(names(), ["s.key.md"]);
    // Neither file is an input.
    fs::write(folder.path().join("t.key.txt"), "1 0; 0 1").expect("a file");
    for line in ["-o t.txt", "-o t.key.txt"] {
        let ran = run_in(
            folder.path(),
            &format!("--q t.key.txt --k '1 0; 0 1' --v '1; 2' --exercise {line}"),
        );
        assert_eq!(ran.code, 2, "{line}");
        assert!(
            ran.err
                .contains("t.key.txt, which is also the input of --q"),
            "{}",
            ran.err
        );
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("t.key.txt")).expect("q"),
        "1 0; 0 1"
    );
    // A name without an ending.
    let ran = run_in(folder.path(), "--exercise -o u --format markdown");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "u\nu.key\n"),
        "{}",
        ran.err
    );
    assert_eq!(names(), ["s.key.md", "t.key.txt", "u", "u.key"]);
}

#[test]
fn refusals() {
    let cases: &[(&str, &[&str])] = &[
        ("--exercise", &["-o: missing", "-o sheet.md"]),
        ("--exercise -o -", &["-o: missing"]),
        (
            "--exercise --json",
            &["--exercise", "format json", "-o sheet.md"],
        ),
        ("--exercise -o s.json", &["--exercise", "format json"]),
        (
            "--exercise -o s.safetensors",
            &["--exercise", "format safetensors"],
        ),
        (
            "--exercise hard -o s.md",
            &["--exercise", "\"hard\"", "given, random"],
        ),
        (
            "--exercise random --q '1 0' -o s.md",
            &["--q: cannot be used with --exercise random"],
        ),
        (
            "--exercise random --x '1 0' -o s.md",
            &["--x: cannot be used with --exercise random"],
        ),
        (
            "--exercise random --keep '1 0' -o s.md",
            &["--keep", "--exercise random"],
        ),
        (
            "--exercise --contrast -o s.md",
            &["--contrast", "--exercise"],
        ),
        (
            "--exercise --causal --next-token -o s.md",
            &["--next-token", "--exercise"],
        ),
        (
            "--exercise --permute 1,0 -o s.md",
            &["--permute", "--exercise"],
        ),
        (
            "--exercise --backward --row 0 -o s.md",
            &["--row", "--exercise --backward"],
        ),
        (
            "--exercise random --heads 2 --kv-heads 4 -o s.md",
            &["--kv-heads", "multiple"],
        ),
        (
            "--exercise random --heads 1000000000 -o s.md",
            &["--exercise", "too large"],
        ),
        (
            "--exercise -o s.md --x '1 0 0 1; 0 1 1 0' --init xavier --dk 40 --dv 1",
            &["--exercise", "too large"],
        ),
        (
            "--exercise -o s.md --q '1;2;3;4;5;6;7;8;9' --k '1;2;3;4;5;6;7;8;9' --v '1;2;3;4;5;6;7;8;9' --row 0,1,2,3,4,5,6,7,8",
            &["--exercise", "blanks, more than 240", "--row"],
        ),
    ];
    for (line, parts) in cases {
        let ran = qkv(&format!("explain {line}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        for part in *parts {
            assert!(ran.err.contains(part), "{line}: {}", ran.err);
        }
    }
}
