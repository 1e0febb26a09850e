//! Pictures of heads: what they say, what they leave out, and that nothing in them acts.
#![allow(missing_docs, clippy::unwrap_used)]

use qkv_report::{Lang, MapView, Settings, map_html, map_json, map_svg, map_text};
use qkv_trace::{Arrays, By, Chosen, Facts, HeadsBy, Kind, Place, Selection, Source, Token};
use serde_json::Value;

const NASTY: [&str; 8] = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"'`&amp;",
    "a\0b\x1b[31m",
    "\u{202e}rtl",
    "العربية",
    "😀",
    "<!--",
];

fn tokens(texts: &[&str]) -> Vec<Token> {
    texts.iter().map(|text| Token::new(text)).collect()
}

/// Causal weights that differ from row to row and head to head.
fn causal(layers: usize, heads: usize, texts: &[&str]) -> Arrays {
    let n = texts.len();
    let mut facts = Facts::of_weights(&[layers, heads, n, n], vec![tokens(texts)]).unwrap();
    facts.model = "<b>model</b>\u{7}".into();
    facts.conventions = vec![("pairing</dt>".into(), "<halves>".into())];
    if heads.is_multiple_of(2) {
        facts.kv_heads = heads / 2;
    }
    facts.head_dim = 3;
    facts.scale = Some(0.5);
    let mut source = Arrays::new(facts.clone()).unwrap();
    for layer in 0..layers {
        let mut weights = Vec::new();
        for head in 0..heads {
            for row in 0..n {
                let raw = |key: usize| match key <= row {
                    true => 1.0 + ((row * 7 + key * 5 + head * 3 + layer) % 11) as f32,
                    false => 0.0,
                };
                let sum: f32 = (0..n).map(raw).sum();
                weights.extend((0..n).map(|key| raw(key) / sum));
            }
        }
        source = source.with_weights(layer, weights).unwrap();
        for kind in [Kind::Q, Kind::K] {
            let count: usize = facts.shape(kind).iter().product();
            let values = (0..count).map(|at| (at % 7) as f32 - 3.0).collect();
            source = source.with(kind, layer, values).unwrap();
        }
    }
    source
}

fn settings(lang: Lang, width: usize) -> Settings {
    Settings {
        lang,
        width,
        ..Settings::default()
    }
}

fn ranked(source: &mut dyn Source, by: &[&str]) -> MapView {
    let by = by.iter().map(|by| By::parse(by).unwrap()).collect();
    let mut heads = HeadsBy::new(by, None);
    heads.add(source).unwrap();
    MapView {
        rankings: heads.rankings().unwrap(),
        ..MapView::default()
    }
}

/// The data element of a page.
fn element<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("id=\"{id}\">")).unwrap() + id.len() + 6;
    let end = page[start..].find("</script>").unwrap();
    &page[start..start + end]
}

#[test]
fn nothing_in_a_token_acts_on_a_page() {
    let mut source = causal(2, 4, &NASTY);
    let view = ranked(&mut source, &["previous", "own"]);
    for lang in [Lang::En, Lang::Zh] {
        let page = map_html(&mut source, &view, &settings(lang, 80)).unwrap();
        for bad in [
            "<script>alert",
            "<img",
            "onerror=alert(2)>",
            "<b>model",
            "<halves>",
            "\0",
            "\x1b",
        ] {
            assert!(!page.contains(bad), "{bad:?}");
        }
        // Every element that opens closes where the page closes it.
        assert_eq!(
            page.matches("<script").count(),
            page.matches("</script>").count()
        );
        let facts: Value = serde_json::from_str(element(&page, "facts")).unwrap();
        assert_eq!(facts["keys"][5], "العربية");
        assert_eq!(facts["keys"][3], "a\\u{0}b\\u{1…");
        assert_eq!(facts["keys"][4], "\\u{202e}rtl");
        assert_eq!(facts["queries"][0], "0 <script>ale…");
        assert_eq!(
            facts["words"]["layer"].as_str().unwrap().contains('层'),
            lang == Lang::Zh
        );
    }
}

#[test]
fn a_page_asks_for_nothing_from_outside() {
    let mut source = causal(2, 3, &["the", " cat", " sat"]);
    let page = map_html(&mut source, &MapView::default(), &Settings::default()).unwrap();
    assert!(page.contains("default-src 'none'"));
    let page = page.replace("\"http://www.w3.org/2000/svg\"", ""); // a name, not an address
    for way in [
        "http:",
        "https:",
        "src=",
        "url(",
        "@import",
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "import(",
        "<link",
        "EventSource",
        "sendBeacon",
        "eval(",
        "Worker(",
    ] {
        assert!(!page.contains(way), "{way}");
    }
    for (at, _) in page.match_indices("href=\"") {
        assert!(page[at + 6..].starts_with('#'));
    }
}

#[test]
fn a_page_holds_every_head_and_its_vectors() {
    let mut source = causal(2, 4, &["a", " b", " c"]);
    let view = MapView::default();
    let page = map_html(&mut source, &view, &Settings::default()).unwrap();
    for head in 0..8 {
        assert!(!element(&page, &format!("w{head}")).is_empty());
    }
    // 3 tokens × 3 columns of 4 bytes; queries of 4 heads, keys of 2.
    for id in ["q1-3", "k1-1"] {
        assert_eq!(element(&page, id).len(), 48);
    }
    assert!(!page.contains("id=\"k1-2\""));
    let facts: Value = serde_json::from_str(element(&page, "facts")).unwrap();
    assert_eq!(facts["shared"][3], serde_json::json!([2, 3]));
    let selection = Selection {
        layers: Some(vec![1]),
        heads: Some(vec![2]),
        rows: Some(vec![2]),
    };
    let mut chosen = Chosen::new(&mut source, &selection).unwrap();
    let page = map_html(&mut chosen, &view, &Settings::default()).unwrap();
    let facts: Value = serde_json::from_str(element(&page, "facts")).unwrap();
    assert_eq!(
        (&facts["start"], &facts["own"]),
        (&"L1H2".into(), &serde_json::json!([2]))
    );
}

#[test]
fn text_says_what_json_says() {
    let texts = ["The", " animal", " was", " here", " and", " it", " slept"];
    let mut source = causal(2, 3, &texts);
    let mut view = ranked(&mut source, &["previous", "it>animal"]);
    view.few_heads = true;
    let json = map_json(&mut source, &view).unwrap();
    let text = map_text(&mut source, &view, &settings(Lang::En, 100)).unwrap();
    let first = &json["heads_by"][1]["heads"][0];
    let name = format!("L{}H{}", first["layer"], first["head"]);
    let line = text
        .lines()
        .filter(|line| line.trim_start().starts_with(&name))
        .nth(1)
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1], format!("{:.4}", first["mean"].as_f64().unwrap()));
    assert_eq!(json["heads_by"][1]["control"], "here");
    let link = &json["weights"][0]["links"][6][0];
    let key = link["key"].as_u64().unwrap() as usize;
    let shown = format!(
        "{key} {} {:.4}",
        texts[key].replace(' ', "␣"),
        link["weight"].as_f64().unwrap()
    );
    assert!(
        text.contains(&format!("6 ␣slept  ← {shown}")),
        "{shown}\n{text}"
    );
    assert_eq!(json["weights"][1]["rows"][0][0], 1.0);
    assert!(text.contains("Weights are not an explanation"));
    let zh = map_text(&mut source, &view, &settings(Lang::Zh, 100)).unwrap();
    assert!(zh.contains("权重不是解释") && !zh.contains("Heads by"));
}

#[test]
fn no_line_is_wider_than_asked_and_no_colour_is_there_unasked() {
    let mut source = causal(6, 4, &NASTY);
    let mut view = ranked(&mut source, &["first", "same"]);
    for few_heads in [false, true] {
        view.few_heads = few_heads;
        for lang in [Lang::En, Lang::Zh] {
            for width in [40, 80, 120] {
                let text = map_text(&mut source, &view, &settings(lang, width)).unwrap();
                for line in text.lines() {
                    let wide = unicode_width::UnicodeWidthStr::width(line);
                    assert!(wide <= width, "{wide} > {width}: {line}");
                    assert!(!line.contains(['\x1b', '\0', '\u{7}']), "{line:?}");
                }
            }
        }
    }
    let colour = Settings {
        color: true,
        ..Settings::default()
    };
    assert!(
        map_text(&mut source, &view, &colour)
            .unwrap()
            .contains("\x1b[38;5;")
    );
}

#[test]
fn the_first_token_set_aside_is_not_drawn_and_not_listed() {
    let mut source = causal(1, 1, &["a", " b", " c"]);
    let view = MapView {
        without_first: true,
        ..MapView::default()
    };
    let json = map_json(&mut source, &view).unwrap();
    let links = &json["weights"][0]["links"];
    // In its own row it is all there is.
    assert_eq!(links[0][0]["key"], 0);
    for row in [1, 2] {
        let links = links[row].as_array().unwrap();
        assert!(!links.is_empty() && links.iter().all(|link| link["key"] != 0));
    }
    let text = map_text(&mut source, &view, &Settings::default()).unwrap();
    assert!(text.replace('\n', " ").contains("it is set aside here"));
    assert!(!text.contains("· 0 a"), "{text}");
}

#[test]
fn odd_weights_are_said_and_survive() {
    let facts = Facts::of_weights(&[1, 1, 3, 3], vec![tokens(&["a", "b", "c"])]).unwrap();
    let weights = vec![1.0, 0.0, 0.0, f32::NAN, 0.5, 0.0, 0.25, 0.25, 1.5];
    let mut source = Arrays::new(facts)
        .unwrap()
        .with_weights(0, weights)
        .unwrap();
    let view = MapView::default();
    let text = map_text(&mut source, &view, &settings(Lang::En, 100)).unwrap();
    for says in [
        "L0H0 has NaN in 1 row; averages over it are NaN.",
        "Rows sum to between 1 and 2 rather than 1",
        "1 weight is below 0 or above 1.",
        "1 b ← 0 a NaN",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let json = map_json(&mut source, &view).unwrap();
    assert_eq!(json["heads"][0]["entropy"], "nan");
    assert_eq!(json["weights"][0]["rows"][1][0], "nan");
    let page = map_html(&mut source, &view, &Settings::default()).unwrap();
    assert!(page.contains("L0H0 has NaN in 1 row"));
    let facts: Value = serde_json::from_str(element(&page, "facts")).unwrap();
    assert_eq!(
        (&facts["scale"], &facts["statistics"]["entropy"][0]),
        (&1.5.into(), &Value::Null)
    );
    let place = Place {
        entry: 0,
        layer: 0,
        head: 0,
    };
    assert!(
        map_svg(&mut source, place, &view, &Settings::default())
            .unwrap()
            .contains("#d1242f")
    );
}

#[test]
fn a_drawing_is_well_formed() {
    let mut source = causal(1, 2, &NASTY);
    let place = Place {
        entry: 0,
        layer: 0,
        head: 1,
    };
    let svg = map_svg(
        &mut source,
        place,
        &MapView::default(),
        &Settings::default(),
    )
    .unwrap();
    let allowed = |c: char| c == '\n' || !c.is_control();
    assert!(svg.chars().all(allowed));
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap();
        assert!(!text.contains('>'));
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
    }
    assert!(open.is_empty());
    assert!(svg.contains("<title>Layer 0, head 1, key and value head 0"));
    // Of 64 cells 36 are kept.
    assert_eq!(svg.matches("fill-opacity").count(), 36);
}
