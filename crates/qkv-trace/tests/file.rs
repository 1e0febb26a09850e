//! Trace files: what is written is read, and damage is said.
#![allow(missing_docs, clippy::unwrap_used)]

use qkv_trace::{
    Arrays, Chosen, Facts, Keep, Kind, Place, Selection, Source, Stage, Token, TraceFile, write,
};
use std::fs;
use std::ops::Range;

/// Two layers, two heads on one, three tokens of two batch entries, one of them padding.
fn arrays() -> Arrays {
    let text = |texts: [&str; 3]| -> Vec<Token> {
        let tokens = texts.iter().enumerate();
        let token = |(at, text): (usize, &&str)| Token {
            id: Some(at as u32 + 7),
            text: (*text).into(),
            padding: text.is_empty(),
        };
        tokens.map(token).collect()
    };
    let texts = vec![
        text(["</script>", "\u{202e}\0\"", "😀"]),
        text(["", " b", "\n"]),
    ];
    let mut facts = Facts::of_weights(&[2, 2, 2, 3, 3], texts).unwrap();
    facts.kv_heads = 1;
    facts.head_dim = 2;
    facts.model = "toy".into();
    facts.scale = Some(0.125);
    facts.conventions = vec![("pairing".into(), "halves".into())];
    let mut arrays = Arrays::new(facts).unwrap();
    for layer in 0..2 {
        let weights: Vec<f32> = (0..36).map(|n| (n + 100 * layer) as f32 / 8.0).collect();
        arrays = arrays.with_weights(layer, weights).unwrap();
        let k = (0..12).map(|n| n as f32 - layer as f32).collect();
        arrays = arrays.with(Kind::K, layer, k).unwrap();
    }
    arrays
}

fn rows(source: &mut dyn Source, kind: Kind, layer: usize, head: usize) -> Vec<f32> {
    let mut out = Vec::new();
    let all = source.facts().rows_of(kind);
    let place = Place {
        entry: 1,
        layer,
        head,
    };
    source.rows(kind, place, 0..all, &mut out).unwrap();
    out
}

/// Heads of keys are fewer than those of queries: which are counted is part of the message.
#[test]
fn heads_that_are_not_there_are_named_by_what_they_are() {
    let mut source = arrays();
    let place = Place {
        entry: 0,
        layer: 0,
        head: 2,
    };
    for (kind, says) in [
        (
            Kind::K,
            "key and value head 2 is not there; there are only 0",
        ),
        (Kind::Weights, "head 2 is not there; there are 0 to 1"),
    ] {
        let error = source.rows(kind, place, 0..1, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
}

#[test]
fn a_file_holds_what_the_source_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let mut source = arrays();
    let keep = Keep::parse("q,k,weights").unwrap();
    write(&path, &mut source, &keep).unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    assert_eq!(file.facts(), source.facts());
    assert!(!file.has(Kind::Q, 0) && file.has(Kind::K, 1));
    for layer in 0..2 {
        let read = rows(&mut file, Kind::Weights, layer, 1);
        assert_eq!(read, rows(&mut source, Kind::Weights, layer, 1));
        let read = rows(&mut file, Kind::K, layer, 0);
        assert_eq!(read, rows(&mut source, Kind::K, layer, 0));
    }
    let array = qkv_io::read_file(&path, Some("blocks.1.attn.hook_pattern")).unwrap();
    assert_eq!(array.shape, [2, 2, 3, 3]);
}

#[test]
fn a_part_is_written_under_its_own_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let mut source = arrays();
    let selection = Selection {
        layers: Some(vec![1]),
        heads: Some(vec![1]),
        rows: Some(vec![0, 2]),
    };
    let keep = Keep::parse("weights").unwrap();
    write(
        &path,
        &mut Chosen::new(&mut source, &selection).unwrap(),
        &keep,
    )
    .unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    assert_eq!(
        (&file.facts().layers[..], &file.facts().heads[..]),
        (&[1][..], &[1][..])
    );
    assert_eq!(file.facts().own_key(1), Some(2));
    let all = rows(&mut source, Kind::Weights, 1, 1);
    let kept = rows(&mut file, Kind::Weights, 1, 1);
    assert_eq!(kept, [&all[..3], &all[6..]].concat());
    let selection = Selection {
        layers: Some(vec![2]),
        ..selection
    };
    let error = Chosen::new(&mut source, &selection)
        .err()
        .unwrap()
        .to_string();
    assert_eq!(error, "layer 2 is not there; there are 0 to 1");
}

#[test]
fn the_largest_weights_come_back_in_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let mut source = arrays();
    let keep = Keep::parse("top:2").unwrap();
    write(&path, &mut source, &keep).unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    assert_eq!(file.facts().top, Some(2));
    let mut all = rows(&mut source, Kind::Weights, 1, 0);
    all.chunks_mut(3).for_each(|row| row[0] = 0.0); // the smallest of each row
    assert_eq!(rows(&mut file, Kind::Weights, 1, 0), all);
    assert!(Keep::parse("top:0").is_err() && Keep::parse("weight").is_err());
}

#[test]
fn cut_off_anywhere_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let keep = Keep::parse("k,weights,top:1").unwrap();
    write(&path, &mut arrays(), &keep).unwrap();
    let bytes = fs::read(&path).unwrap();
    for percent in 0..100 {
        fs::write(&path, &bytes[..bytes.len() * percent / 100]).unwrap();
        let error = TraceFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("t.safetensors"), "{percent}: {error}");
    }
}

#[test]
fn notes_that_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let keep = Keep::parse("k,weights,top:1").unwrap();
    write(&path, &mut arrays(), &keep).unwrap();
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
    for (from, to, says) in [
        (
            r#"\"all_heads\":2"#,
            r#"\"all_heads\":99999999999999999999"#,
            "\"shape\" is not",
        ),
        (r#"\"all_heads\":2"#, r#"\"all_heads\":3"#, ""),
        (r#"\"all_heads\":2"#, r#"\"all_heads\":1"#, "count from 0"),
        (r#"\"kv_heads\":1"#, r#"\"kv_heads\":0"#, "multiple"),
        (
            r#"\"head_dim\":2"#,
            r#"\"head_dim\":4611686018427387904"#,
            "hook_k: shape",
        ),
        (r#"\"top\":1"#, r#"\"top\":2"#, "hook_pattern_top: shape"),
        (r#"\"layers\":[0,1]"#, r#"\"layers\":[1,0]"#, "ascending"),
        (r#"\"layers\":[0,1]"#, r#"\"layers\":[]"#, "ascending"),
        (r#"\"rows\":[0,1,2]"#, r#"\"rows\":[0,1,9]"#, "own key"),
        (r#""shape":"{"#, r#""shapes":"{"#, "no \"shape\""),
        (r#""tokens":"#, r#""toks":"#, "no \"tokens\""),
        (r#"[[7,8,9],"#, r#"[[7,8],"#, "\"token_ids\" is not"),
        (r#"\"halves\""#, r#"7"#, "\"conventions\" is not"),
        (
            "hook_pattern_top_keys",
            "hook_pattern_top_kyes",
            "only one of",
        ),
    ] {
        // Padded so that the data stays where it is.
        assert!(header.contains(from), "{from}");
        let mut text = header.replace(from, to);
        text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
        let mut file = (text.len() as u64).to_le_bytes().to_vec();
        file.extend(text.bytes());
        file.extend(&bytes[8 + length..]);
        fs::write(&path, file).unwrap();
        match TraceFile::open(&path) {
            Err(error) => assert!(
                !says.is_empty() && error.to_string().contains(says),
                "{to}: {error}"
            ),
            Ok(_) => assert_eq!(says, "", "{to}"),
        }
    }
}

#[test]
fn a_key_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let keep = Keep::parse("top:1").unwrap();
    write(&path, &mut arrays(), &keep).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&7_i32.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    let place = Place {
        entry: 1,
        layer: 1,
        head: 1,
    };
    let error = file
        .rows(Kind::Weights, place, 0..3, &mut Vec::new())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("has the key 7 where there are 3"),
        "{error}"
    );
}

#[test]
fn what_is_no_trace_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    qkv_io::write_safetensors(&path, &[("x", &[1], &[1.0])], &[]).unwrap();
    let error = TraceFile::open(&path).unwrap_err().to_string();
    assert!(error.contains("its notes have no \"shape\""), "{error}");
    fs::write(&path, b"\x93NUMPY\x01\x00").unwrap();
    let error = TraceFile::open(&path).unwrap_err().to_string();
    assert!(error.contains("npy"), "{error}");
}

/// A source with a residual of three numbers: of a row of a stage, its place, 1 and 2.
struct WithResidual(Arrays);

impl Source for WithResidual {
    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        self.0.has(kind, layer)
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> qkv_trace::Result<()> {
        self.0.rows(kind, place, rows, out)
    }

    fn residual_width(&self, _: Stage) -> Option<usize> {
        Some(3)
    }

    fn residual(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> qkv_trace::Result<()> {
        let first = match stage {
            Stage::Into(layer) => 100 * layer,
            Stage::OutOf(layer) => 100 * layer + 50,
            Stage::Normed => 1000,
        };
        let of_row = |row: usize| [(first + 10 * entry + row) as f32, 1.0, 2.0];
        *out = rows.flat_map(of_row).collect();
        Ok(())
    }
}

#[test]
fn the_residual_is_kept_of_the_rows_that_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let mut source = WithResidual(arrays());
    let selection = Selection {
        rows: Some(vec![0, 2]),
        ..Selection::default()
    };
    let mut chosen = Chosen::new(&mut source, &selection).unwrap();
    write(
        &path,
        &mut chosen,
        &Keep::parse("resid,resid_norm").unwrap(),
    )
    .unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    assert!(!file.has(Kind::Weights, 0));
    let first = |stage| match stage {
        Stage::Into(layer) => 100.0 * layer as f32,
        Stage::OutOf(layer) => 100.0 * layer as f32 + 50.0,
        Stage::Normed => 1000.0,
    };
    let (mut rows, mut norms) = (Vec::new(), Vec::new());
    for stage in [
        Stage::Into(0),
        Stage::Into(1),
        Stage::OutOf(1),
        Stage::Normed,
    ] {
        file.residual(stage, 1, 0..2, &mut rows).unwrap();
        let [a, b] = [first(stage) + 10.0, first(stage) + 12.0];
        assert_eq!(rows, [a, 1.0, 2.0, b, 1.0, 2.0]);
        file.residual_norms(stage, 1, 1..2, &mut norms).unwrap();
        assert_eq!(norms, [(b * b + 5.0).sqrt()]);
    }
    // What goes into the next layer is not said twice.
    assert!(file.residual(Stage::OutOf(0), 0, 0..1, &mut rows).is_err());
    // A layer alone has what goes in and what comes out; the model's last norm is of its last layer.
    let selection = Selection {
        layers: Some(vec![0]),
        ..Selection::default()
    };
    let mut chosen = Chosen::new(&mut source, &selection).unwrap();
    write(&path, &mut chosen, &Keep::parse("resid_norm").unwrap()).unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    file.residual_norms(Stage::OutOf(0), 0, 0..1, &mut norms)
        .unwrap();
    assert_eq!(norms, [(50.0_f32 * 50.0 + 5.0).sqrt()]);
    assert!(file.residual_width(Stage::OutOf(0)).is_none());
    assert!(!file.has_residual_norms(Stage::Normed));
}
