//! A second run beside the first: another order of tokens, no cache.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{settings, subject};
use qkv::{Attention, Block, Causal, Inputs, StepName, Tensor};
use qkv_check::decode::against_one_call;
use qkv_check::permute::{Source, permute};
use qkv_report::{Lang, More, Origin, Subject, json, text};

#[track_caller]
fn has(text: &str, what: &str) {
    assert!(text.contains(what), "no {what:?} in\n{text}");
}

fn tensor(rows: usize, numbers: &[f64]) -> Tensor<f64> {
    Tensor::new(&[1, 1, rows, numbers.len() / rows], numbers.to_vec()).unwrap()
}

/// Two tokens that see only themselves or each other, in turn: the numbers are whole.
fn permuted(causal: Option<Causal>, check: impl FnOnce(&Subject<'_>)) {
    let (q, v) = (tensor(2, &[0.0, 0.0]), tensor(2, &[2.0, 6.0]));
    let block = Block {
        attention: Attention {
            causal,
            ..Attention::default()
        },
        ..Block::default()
    };
    let inputs = Inputs::new(q.view().unwrap(), q.view().unwrap(), v.view().unwrap());
    let steps = block.steps(&inputs.unwrap()).unwrap();
    let source = Source::Given {
        block: &block,
        q: &q,
        k: &q,
        v: &v,
    };
    let more = More {
        permuted: Some(permute(source, &steps, &[1, 0]).unwrap()),
        ..More::default()
    };
    check(&Subject {
        more,
        ..subject(&block, &steps, Origin::Given, 0)
    });
}

#[test]
fn permuted_tokens_permute_the_outputs() {
    permuted(None, |subject| {
        let english = text(subject, &settings(Lang::En, 80));
        has(&english, "The same tokens in another order");
        has(&english, "in the order 1, 0");
        has(
            &english,
            "same rows in the new order (largest difference 0)",
        );
        has(&english, "o0  4    o'0  4    o'0 − o1    0");
        let chinese = text(subject, &settings(Lang::Zh, 80));
        has(&chinese, "输出正是照新次序排列的那些行（最大相差0）");
        assert_eq!(json(subject)["permute"]["equal"], true);
    });
}

/// o = [2, 4]; in the other order o' = [6, 4].
#[test]
fn a_causal_mask_ends_it_and_is_named_with_the_numbers() {
    permuted(Some(Causal::Square), |subject| {
        let english = text(subject, &settings(Lang::En, 80));
        has(
            &english,
            "The outputs are not the same rows: the largest difference is 2.",
        );
        has(
            &english,
            "--causal alone: largest difference 2. It is responsible",
        );
        has(&english, "Without any of them the largest difference is 0");
        has(&english, "o0  2    o'0  6    o'0 − o1    2");
        has(&english, "o1  4    o'1  4    o'1 − o0    2");
        let chinese = text(subject, &settings(Lang::Zh, 80));
        has(&chinese, "只用--causal：最大相差2。原因就在这里");
        let json = &json(subject)["permute"];
        assert_eq!(json["order"], serde_json::json!([1, 0]));
        assert_eq!(json["equal"], false);
        assert_eq!(json["output"], serde_json::json!([[[[6.0], [4.0]]]]));
        assert_eq!(json["options"][0]["option"], "causal");
        assert_eq!(json["options"][0]["responsible"], true);
    });
}

/// B108: three tokens cached, one new.
#[test]
fn b108_keys_and_values_grow_from_three_to_four() {
    let (q, k, v) = (tensor(1, &[1.0]), tensor(1, &[0.0]), tensor(1, &[8.0]));
    let (past_k, past_v) = (tensor(3, &[0.0; 3]), tensor(3, &[1.0, 2.0, 5.0]));
    let block = Block::default();
    let inputs = Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
    let inputs = inputs.with_past(past_k.view().unwrap(), past_v.view().unwrap());
    let steps = block.steps(&inputs.unwrap()).unwrap();
    assert_eq!(steps.get(StepName::Output).unwrap().data(), [4.0]);
    let more = More {
        decoded: against_one_call(&block, &steps).unwrap(),
        ..More::default()
    };
    let subject = Subject {
        more,
        ..subject(&block, &steps, Origin::Given, 3)
    };
    let english = text(&subject, &settings(Lang::En, 80));
    for words in [
        "Reused: rows 0 to 2 of K and of V, from the cache.",
        "New: 1 query row, and row 3 of K and of V. K and V grow 3 → 4.",
        "1·4 = 4 scores for each head, where all 4 queries would make 4·4 = 16.",
        "That is the last row",
        "keeps keys and values, not the queries of its tokens",
        "o0         4    o0        4    o0          0",
        "Both are equal in every bit",
    ] {
        has(&english, words);
    }
    let chinese = text(&subject, &settings(Lang::Zh, 80));
    has(&chinese, "K和V的行数：3 → 4。");
    has(&chinese, "两者每一位都相同");
    // Nobody asked for more in JSON.
    assert!(json(&subject).get("decode").is_none());
}
