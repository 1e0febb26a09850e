//! What random calls contained.

use super::call::Call;
use qkv::{Causal, DType, EmptyRows, Scale};
use std::collections::BTreeMap;

/// How many calls had each option.
#[derive(Default)]
pub struct Counts {
    calls: usize,
    names: BTreeMap<&'static str, usize>,
}

impl Counts {
    pub fn add(&mut self, call: &Call) {
        self.calls += 1;
        for (name, has) in features(call) {
            *self.names.entry(name).or_default() += usize::from(has);
        }
    }

    /// Fails if some option was in fewer than one of `one_in` calls.
    pub fn assert_each(&self, one_in: usize) {
        for (name, &count) in &self.names {
            assert!(
                count * one_in >= self.calls,
                "{name}: {count} of {}",
                self.calls
            );
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls:", self.calls)?;
        for (name, count) in &self.names {
            write!(f, " {name} {count},")?;
        }
        Ok(())
    }
}

fn features(call: &Call) -> Vec<(&'static str, bool)> {
    let [batch, heads, queries, d_k] = call.q.shape;
    let (kv_heads, keys, d_v) = (call.k.shape[1], call.keys(), call.v.shape[3]);
    let causal = |is: fn(&Causal) -> bool| call.causal.as_ref().is_some_and(is);
    let offset = |is: &dyn Fn(i64) -> bool| match call.causal {
        Some(Causal::Offset(offset)) => is(offset),
        _ => false,
    };
    let side = |is: fn(&Option<usize>, &Option<usize>) -> bool| {
        call.window
            .as_ref()
            .is_some_and(|window| is(&window.back, &window.forward))
    };
    let scale = |is: fn(f64) -> bool| match call.scale {
        Scale::Factor(factor) => is(factor),
        Scale::InverseSqrt => false,
    };
    let mask = |is: &dyn Fn(&[usize; 4], bool) -> bool| {
        call.masks
            .iter()
            .any(|(mask, keeps)| is(&mask.shape, *keeps))
    };
    let bias = |dtype| call.bias.is_some() && call.bias_dtype == dtype;
    let bias_has = |is: fn(&f64) -> bool| call.bias.as_ref().is_some_and(|b| b.data.iter().any(is));
    let arrays = [&call.q, &call.k, &call.v];
    let data = || arrays.iter().flat_map(|array| &array.data);
    let nothing = call.bias.is_none()
        && call.masks.is_empty()
        && call.softcap.is_none()
        && call.alibi.is_none();
    let full = [batch, heads, queries, keys];
    vec![
        ("scale 0", scale(|x| x == 0.0)),
        ("scale negative", scale(|x| x < 0.0)),
        ("scale huge", scale(|x| x.abs() >= 1e6)),
        ("scale tiny", scale(|x| x != 0.0 && x.abs() <= 1e-10)),
        ("softcap", call.softcap.is_some()),
        ("bias f16", bias(DType::F16)),
        ("bias bf16", bias(DType::Bf16)),
        ("bias f32", bias(DType::F32)),
        ("bias f64", bias(DType::F64)),
        ("bias −∞", bias_has(|x| *x == f64::NEG_INFINITY)),
        ("bias lowest", bias_has(|x| x.is_finite() && *x < -1e4)),
        ("alibi", call.alibi.is_some()),
        ("keep mask", mask(&|_, keeps| keeps)),
        ("drop mask", mask(&|_, keeps| !keeps)),
        ("two masks", call.masks.len() > 1),
        (
            "mask of one row",
            mask(&|shape, _| shape[2] == 1 && shape[3] > 1),
        ),
        (
            "mask of one column",
            mask(&|shape, _| shape[2] > 1 && shape[3] == 1),
        ),
        ("mask of all rows", mask(&|shape, _| *shape == full)),
        ("causal square", causal(|c| *c == Causal::Square)),
        ("causal top-left", causal(|c| *c == Causal::TopLeft)),
        ("causal bottom-right", causal(|c| *c == Causal::BottomRight)),
        ("offset negative", offset(&|n| n < 0)),
        ("offset inside", offset(&|n| (0..keys as i64).contains(&n))),
        ("offset beyond", offset(&|n| n >= keys as i64)),
        (
            "window back",
            side(|back, forward| back.is_some() && forward.is_none()),
        ),
        (
            "window forward",
            side(|back, forward| back.is_none() && forward.is_some()),
        ),
        (
            "window both",
            side(|back, forward| back.is_some() && forward.is_some()),
        ),
        ("lengths", call.lengths.is_some()),
        ("documents", call.documents.is_some()),
        (
            "empty document",
            call.documents
                .as_ref()
                .is_some_and(|(q, k)| q.contains(&0) || k.contains(&0)),
        ),
        ("sinks", call.sinks.is_some()),
        ("dropout", call.dropout.is_some()),
        ("empty rows an error", call.empty_rows == EmptyRows::Error),
        ("cached keys", call.past.is_some()),
        (
            "only cached keys",
            call.past.is_some() && call.k.shape[2] == 0,
        ),
        ("nothing between scores and softmax", nothing),
        ("NaN or ∞", data().any(|x| !x.is_finite())),
        ("grouped heads", heads > kv_heads),
        (
            "one element for all",
            arrays
                .iter()
                .any(|array| array.shared_axes().contains(&true)),
        ),
        ("batch", batch > 1),
        ("one query", queries == 1),
        ("no query or key", queries == 0 || keys == 0),
        ("more than a block of queries", queries > 96),
        ("more than a block of keys", keys > 256),
        ("keys 255 to 257", (255..=257).contains(&keys)),
        ("keys 2047 to 2049", (2047..=2049).contains(&keys)),
        ("more than a chunk of keys", keys > 2048),
        ("odd d_k", d_k % 2 == 1),
        ("odd d_v", d_v % 2 == 1),
        ("d_k ≠ d_v", d_k != d_v),
        ("d_k above 128", d_k > 128),
        ("d_v above 128", d_v > 128),
        ("sizes all different", {
            let sizes = [batch, heads, kv_heads, queries, keys, d_k, d_v];
            (1..7).all(|n| !sizes[..n].contains(&sizes[n]))
        }),
    ]
}
