//! Bad text: each is an error whose text names the fault, the place and the remedy.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::refused;
use qkv_io::{parse_literal, read_file};

#[test]
fn bad_literals() {
    let cases: &[(&str, &[&str])] = &[
        ("", &["no value", "type at least one"]),
        ("  ", &["no value"]),
        (";", &["character 1", "value is missing"]),
        (
            "1 0; 0",
            &[
                "line 1, character 6",
                "rows have 2, 1 values",
                "row 1",
                "same number",
            ],
        ),
        ("1 0; 0 1; 1", &["2, 2, 1 values", "row 2"]),
        ("1 0\n0 1 1", &["line 2, character 1", "2, 3 values"]),
        ("1 0;; 0 1", &["character 5", "value is missing"]),
        ("1,,2", &["character 3", "value is missing"]),
        (",1", &["character 1", "value is missing"]),
        ("1,", &["character 3", "value is missing"]),
        ("1, ; 2", &["character 4", "value is missing"]),
        ("1 1/3", &["character 3", "\"1/3\"", "decimals"]),
        (
            "1 x",
            &[
                "character 3",
                "\"x\" is not a number",
                "write a decimal number",
            ],
        ),
        ("1 1e999", &["character 3", "1e999 is too large", "inf"]),
        ("-1e400", &["too large"]),
        ("1_000", &["underscores"]),
        ("25%", &["percentages"]),
        ("0x10", &["decimal"]),
        ("2*3", &["result of the calculation"]),
        ("–2", &["dash", "minus"]),
        ("1...", &["abbreviated"]),
        ("1 ... 2", &["abbreviated", "character 3"]),
        ("None 1", &["nan for an unknown value"]),
        ("１ ２", &["full-width"]),
        ("1j 2", &["complex"]),
        ("e5", &["not a number"]),
        (".", &["not a number"]),
        ("1e", &["not a number"]),
        ("--1", &["not a number"]),
        ("1..2", &["one decimal point"]),
        ("1.2.3", &["one decimal point"]),
        ("/usr/bin/2 1", &["write a decimal number such as"]),
        ("q_1 2", &["write a decimal number such as"]),
        ("1;2;3\n4;5;6", &["two readings", "cells of a table"]),
        ("1,5;2,5\n3,5;4,5", &["two readings", "decimal commas"]),
        ("1 true", &["\"true\" mixes truth values and numbers"]),
        ("[", &["1 bracket is still open", "add ]"]),
        ("[[1,2]", &["1 bracket is still open", "character 7"]),
        ("[1]]", &["closes nothing", "character 4"]),
        ("[]", &["no value", "line 1"]),
        ("[[],[]]", &["no value"]),
        ("[1,,2]", &["character 4", "value is missing"]),
        ("[1,2,]", &["character 6", "value is missing"]),
        ("[,1]", &["character 2", "value is missing"]),
        (
            "[[1,2],[3]]",
            &[
                "character 10",
                "list at [1] has 1 value where the first has 2",
            ],
        ),
        ("[[[1],[2]],[[3],[4,5]]]", &["list at [1][1] has 2 values"]),
        ("[1,[2]]", &["at [1] a number and a list"]),
        ("[[1],2]", &["at [1] a number and a list"]),
        ("[[[[[1]]]]]", &["nested more than 4 deep", "character 5"]),
        (
            "[1],[2]",
            &["\",[2]\" follows the end", "one more pair of brackets"],
        ),
        ("[1] x", &["\"x\" follows the end"]),
        ("[1,a]", &["character 4", "\"a\" is not a number"]),
        ("[1,\"2\"]", &["\"2\" is not a number", "quotation marks"]),
        ("[\"nan]", &["quotation mark is not closed"]),
        ("[[1;2],[3;4]]", &["\";\" is not a number", "character 4"]),
        ("[1, true]", &["mixes"]),
        ("[null]", &["nan for an unknown value"]),
    ];
    for (text, facts) in cases {
        let error = match parse_literal(text) {
            Err(error) => error.to_string(),
            Ok(array) => panic!("{text:?} was read as {array:?}"),
        };
        for fact in *facts {
            assert!(error.contains(fact), "{text:?} lacks {fact:?}: {error}");
        }
        assert!(error.starts_with("argument, line "), "{text:?}: {error}");
    }
    assert!(cases.len() >= 50);
}

#[test]
fn bad_text_files() {
    let cases: &[(&[u8], &[&str])] = &[
        (b"1,0\n0\n", &["line 2, column 1", "rows have 2, 1 values"]),
        (b"1,0\n0,\n", &["line 2, column 2", "value is missing"]),
        (
            b"1,0\n0,x\n",
            &["line 2, column 2", "\"x\" is not a number"],
        ),
        (b"a,b\n1,0\n0,1/2\n", &["line 3, column 2", "decimals"]),
        (
            b"a,1\n1,0\n",
            &["line 1, column 1", "\"a\" is not a number"],
        ),
        (b"a,b\nc,d\n", &["line 1, column 1", "\"a\""]),
        (b"a,b\n", &["line 1, column 1", "\"a\" is not a number"]),
        (b"# only a comment\n", &["no value"]),
        (b"\n\n", &["no value"]),
        (b",0,1\n0,1.0,0.0\n", &["line 1, column 1", "index=False"]),
        (b",a\n0,1\n", &["index=False"]),
        (b"hello", &["line 1, column 1", "\"hello\" is not a number"]),
        (
            b"\"hello\"",
            &["line 1, column 1", "\"hello\" is not a number"],
        ),
        (&[b'x'; 5000], &["(5000 characters)", "is not a number"]),
        (
            b"root:x:0:0:root:/root:/bin/bash\nbin:x:1:1:bin:/bin:/sbin/nologin\n",
            &[
                "line 1",
                "\"root:x:0:0:root:/root:/bin/bash\"",
                "write a decimal number such as",
            ],
        ),
        (b"words,more\nof,them\n1,2\n", &["line 1", "\"words\""]),
        (b"\"1,2\n3,4\n", &["line 1", "quotation mark is not closed"]),
        (b"1,2\n3,\"4\n", &["line 2", "quotation mark is not closed"]),
        (
            b"array([[1., 2.],[3., 4.]])",
            &[
                "\"array(…)\"",
                "as Python prints it",
                "numpy.save",
                "leave out \"array(\"",
            ],
        ),
        (
            b"tensor([[1., 2.],\n        [3., 4.]])\n",
            &["\"tensor(…)\"", "as Python prints it", "numpy.save"],
        ),
        (b"np.array([1, 2])", &["\"np.array(…)\""]),
        (b"[01, 2]", &["character 2", "\"01\"", "needless 0"]),
        (b"[[-007]]", &["character 3", "\"-007\"", "needless 0"]),
        (b"[+1, 2]", &["character 2", "\"+1\"", "no sign +"]),
        (b"{\"a\": [01]}", &["line 1", "needless 0"]),
        (
            b"{\"a\": [NaN]}",
            &["line 1", "nan and inf stand in quotation marks"],
        ),
        (b"{\"a\": [1", &["line 1", "ends in the middle"]),
        (b"{1: 2}", &["line 1, character 2", "not valid"]),
        (b"1;0\n0;x\n", &["line 2, column 2"]),
        (b"1\t0\n\t1\n", &["value is missing"]),
        (b"1;2;3\n", &["two readings", "[[1],[2],[3]]"]),
        (b"1,5;2,5\n3,5;4,5\n", &["two readings", "decimal commas"]),
        (b"1 0\n0 x\n", &["line 2, character 3"]),
        (b"1,1e999\n", &["line 1, column 2", "too large"]),
        (b"1,true\n", &["mixes"]),
        (b"1,0 # note\n", &["line 1, column 2"]),
        (b"hello world\n", &["\"hello\" is not a number"]),
        (b"[[1,2],[3]]", &["list at [1]"]),
        (b"{", &["line 1", "not valid"]),
        (b"{\"a\": [1,}", &["not valid", "line 1"]),
        (b"{\"a\": \"text\"}", &["holds no array"]),
        (b"{\"a\": [1], \"b\": [2]}", &["2 arrays", "t:NAME", "a, b"]),
        (
            b"{\"a\":\n  [[1,2],\n  [3]]}",
            &["line 3, character 5", "list at [1]"],
        ),
        (b"{\"a\": [null]}", &["line 1, character 8", "nan"]),
        (b"{\"a\": [\"1\"]}", &["quotation marks"]),
        (b"{\"a\": [1]} x", &["not valid"]),
        (
            b"{\"a\": [1], \"a\": [2]}",
            &["line 1", "the name \"a\" comes twice"],
        ),
        (
            b"{\"a\": {\"b\": [1], \"b\": [2]}}",
            &["\"b\" comes twice", "correct it there"],
        ),
        (
            b"{\"s\": [{\"name\": \"q\", \"values\": [1]}, {\"name\": \"q\", \"values\": [2]}]}",
            &["2 arrays", "q, q"],
        ),
        (
            b"caf\xe9 1 2",
            &["not UTF-8", "byte 3", "E9", "save it as UTF-8"],
        ),
        (
            b"\xff\xfe1\0 \x002\0",
            &["UTF-16 little-endian", "FF FE", "UTF-8"],
        ),
        (b"\xfe\xff\x001\0 ", &["UTF-16 big-endian"]),
        (b"1\x00,\x002\x00\n\x00", &["UTF-16 little-endian"]),
        (
            b"<!DOCTYPE html><html>",
            &["HTML page", "download it again"],
        ),
        (b"\n  <html>", &["HTML page"]),
        (b"<?xml version=\"1.0\"?>", &["XML"]),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
            &["git-lfs pointer", "git lfs pull"],
        ),
    ];
    for (text, facts) in cases {
        refused(&String::from_utf8_lossy(text), text, None, "t", facts);
    }
    assert!(cases.len() >= 35);
}

#[test]
fn a_name_that_several_lists_have() {
    let text = br#"{"a": {"b": [1]}, "a.b": [2]}"#;
    let facts = &[
        "line 1, character 13",
        "several lists have the name \"a.b\"",
    ];
    refused("twice", text, Some("a.b"), "t", facts);
}

#[test]
fn files_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let error = read_file(folder.path(), None).unwrap_err().to_string();
    assert!(error.contains("is a folder; name a file in it"), "{error}");
    let argument = folder.path().to_str().unwrap();
    let error = qkv_io::read_argument(argument, &mut std::io::empty())
        .unwrap_err()
        .to_string();
    assert!(error.contains("is a folder"), "{error}");
    let missing = folder.path().join("q.npz:w");
    let error = qkv_io::read_argument(missing.to_str().unwrap(), &mut std::io::empty());
    assert!(error.unwrap_err().to_string().contains("there is no file"));
    let error = qkv_io::read_argument("-", &mut std::io::empty())
        .unwrap_err()
        .to_string();
    assert!(error.contains("standard input is empty"), "{error}");
}
