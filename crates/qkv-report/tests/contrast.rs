//! What common mistakes would have given, beside the right numbers.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{settings, with_matrices};
use qkv::{Attention, Block, Causal, Scale};
use qkv_check::contrast;
use qkv_report::{Lang, More, Subject, json, text};

const BOTH: [Lang; 2] = [Lang::En, Lang::Zh];

fn contrasted(
    attention: Attention<'_>,
    three: [(&[f64], [usize; 2]); 3],
    width: usize,
    check: impl FnOnce(&Subject<'_>),
) {
    let block = Block {
        attention,
        ..Block::default()
    };
    with_matrices(&block, three, |subject| {
        let contrast = contrast(&block.attention, subject.steps, width).unwrap();
        let more = More {
            contrast,
            ..More::default()
        };
        check(&Subject {
            more,
            ..subject.clone()
        });
    });
}

/// The part under a heading, up to the next.
fn part(text: &str, heading: &str) -> String {
    let at = text
        .find(heading)
        .unwrap_or_else(|| panic!("{heading} in {text}"));
    let lines = text[at..].lines().skip(2);
    let own = lines.take_while(|line| !line.starts_with("───"));
    own.collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn has(text: &str, what: &str) {
    assert!(text.contains(what), "no {what:?} in\n{text}");
}

/// B035: scores [[1,2],[3,5]].
#[test]
fn right_and_wrong_weights_stand_side_by_side() {
    let attention = Attention {
        scale: Scale::Factor(1.0),
        ..Attention::default()
    };
    let (q, k, v) = ([1.0, 2.0, 3.0, 5.0], [1.0, 0.0, 0.0, 1.0], [2.0, 4.0]);
    let three = [(&q[..], [2, 2]), (&k[..], [2, 2]), (&v[..], [2, 1])];
    contrasted(attention, three, 2, |subject| {
        let english = text(subject, &settings(Lang::En, 80));
        let over_queries = part(&english, "Contrast: softmax over the queries");
        for line in [
            "the columns of w sum to 1, the rows",
            "w[1,0] is 0.8808 instead of 0.1192",
            "w[1,0] wrong = 1/(0.1353 + 1) ≈ 0.8808",
            "q0       0.2689  0.7311  1    q0       0.1192  0.0474  0.1666",
            "Σ        0.3881  1.6119  2    Σ        1       1       2",
            "q0             −0.1497  −0.6836",
            "o0       3.4621    o0       0.4281    o0             −3.0340",
        ] {
            has(&over_queries, line);
        }
        let joint = part(&english, "Contrast: softmax over the whole matrix");
        has(&joint, "Σ        0.1277  0.8723  1");
        let missing = part(&english, "Contrast: without the scale");
        has(&missing, "the scale that was given is this very factor");
        let mask = part(&english, "Contrast: the mask inverted");
        has(&mask, "no mask is in force");
        let chinese = text(subject, &settings(Lang::Zh, 80));
        let over_queries = part(&chinese, "对比：沿查询方向做softmax");
        has(&over_queries, "每一列之和为1");
        has(&over_queries, "w[1,0]成了0.8808，应为0.1192");
        has(&over_queries, "w（错误）");
        has(&over_queries, "0.1192  0.0474  0.1666");
    });
}

/// B038: 4 in place of 64 columns, two heads of 2; the factor between is 1/√2.
#[test]
fn the_model_width_and_its_factor_are_named() {
    let (q, k, v) = ([4.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0]);
    let three = [(&q[..], [1, 2]), (&k[..], [2, 2]), (&v[..], [2, 1])];
    contrasted(Attention::default(), three, 4, |subject| {
        let english = text(subject, &settings(Lang::En, 1000));
        let width = part(&english, "Contrast: √d_model instead of √d_k");
        has(&width, "the factor is 0.5 instead of 0.7071");
        has(&width, "are 0.7071 times as large");
        has(&width, "too flat");
        let joint = part(&english, "Contrast: softmax over the whole matrix");
        has(&joint, "with one query the whole matrix is one row");
        let chinese = text(subject, &settings(Lang::Zh, 1000));
        has(&chinese, "系数成了0.5，而不是0.7071");
        has(&chinese, "过于平均");
    });
    contrasted(Attention::default(), three, 2, |subject| {
        let english = text(subject, &settings(Lang::En, 1000));
        has(
            &english,
            "the only width known is its own: d_model = d_k = 2",
        );
        has(
            &text(subject, &settings(Lang::Zh, 1000)),
            "d_model = d_k = 2",
        );
    });
}

/// B010 with a causal mask: the last query keeps nothing.
#[test]
fn the_inverted_mask_shows_later_keys_only() {
    let attention = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let (q, v) = ([1.0, 0.0, 0.0, 1.0, 1.0, 1.0], [1.0, 10.0, 100.0]);
    let three = [(&q[..], [3, 2]), (&q[..], [3, 2]), (&v[..], [3, 1])];
    contrasted(attention, three, 2, |subject| {
        let english = text(subject, &settings(Lang::En, 80));
        let mask = part(&english, "Contrast: the mask inverted");
        has(&mask, "Query 2 would keep no key");
        has(&mask, "o0        1         o0        70.2785");
        has(&mask, "o1        7.0279    o1       100");
        let chinese = text(subject, &settings(Lang::Zh, 80));
        has(&chinese, "查询2没有任何键可看");
        let json = json(subject);
        let mask = &json["contrast"][4];
        assert_eq!(mask["id"], "mask-polarity");
        assert_eq!(mask["output"][0][0][1][0], 100.0);
        assert_eq!(json["contrast"][2]["parameters"]["scale"], 1.0);
        assert_eq!(json["contrast"][3]["parameters"]["model_width"], 2);
    });
}

#[test]
fn a_symmetric_example_cannot_reveal_it() {
    let identity = [1.0, 0.0, 0.0, 1.0];
    let square = (&identity[..], [2, 2]);
    contrasted(Attention::default(), [square; 3], 2, |subject| {
        let english = text(subject, &settings(Lang::En, 1000));
        let over_queries = part(&english, "Contrast: softmax over the queries");
        has(&over_queries, "cannot reveal the mistake");
        assert!(!over_queries.contains("wrong − right"));
    });
    for lang in BOTH {
        with_matrices(&Block::default(), [square; 3], |subject| {
            let text = text(subject, &settings(lang, 80));
            assert!(!text.contains("Contrast") && !text.contains("对比"));
            assert!(json(subject).get("contrast").is_none());
        });
    }
}
