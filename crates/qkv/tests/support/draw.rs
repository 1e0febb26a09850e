//! Random calls, with every option in every combination.

use super::array::{Array, LAYOUTS, Layout};
use super::call::Call;
use super::random::Random;
use half::{bf16, f16};
use qkv::{Causal, DType, Dropout, EmptyRows, Scale, Window};

/// Around the sizes of vectors, tiles and blocks.
pub const LENGTHS: [usize; 12] = [1, 2, 3, 5, 17, 31, 63, 64, 65, 127, 128, 129];

/// Around blocks and chunks.
const LONG: [usize; 16] = [
    255, 256, 257, 300, 511, 512, 513, 2047, 2048, 2049, 3000, 4096, 4097, 4500, 5000, 6500,
];

/// Batch, heads, key and value heads, queries, keys, d_k, d_v.
struct Sizes {
    batch: usize,
    kv_heads: usize,
    group: usize,
    queries: usize,
    keys: usize,
    d_k: usize,
    d_v: usize,
}

impl Sizes {
    fn random(random: &mut Random, least: usize, most: usize) -> Sizes {
        let mut sizes = Sizes {
            batch: random.pick(&[1, 1, 2, 3]),
            kv_heads: random.pick(&[1, 2, 3]),
            group: random.pick(&[1, 1, 2, 4, 5]),
            queries: random.pick(&LENGTHS),
            keys: random.pick(&LENGTHS),
            d_k: width(random),
            d_v: width(random),
        };
        match random.below(24) {
            0 | 1 | 12 | 13 => sizes.keys = random.pick(&LONG),
            2 | 3 => sizes.queries = random.pick(&LONG),
            4 => {
                // Around blocks of queries.
                let around = random.pick(&[96, 144, 192, 264, 288]);
                sizes.queries = around - 1 + random.below(3);
            }
            5 => sizes.keys = random.below(300),
            6 => sizes.queries = random.below(200),
            7 => sizes.keys = 0,
            8 => sizes.queries = 0,
            9..=11 => sizes.queries = sizes.keys,
            _ => {}
        }
        while (1..least).contains(&sizes.work()) {
            match random.below(4) {
                0 => sizes.batch *= 2,
                1 => sizes.kv_heads += 1,
                2 => sizes.queries = 2 * sizes.queries + 1,
                _ => sizes.keys = 2 * sizes.keys + 1,
            }
        }
        while sizes.work() > most {
            match sizes {
                Sizes { group: 2.., .. } => sizes.group = 1,
                Sizes { batch: 2.., .. } => sizes.batch = 1,
                Sizes { kv_heads: 2.., .. } => sizes.kv_heads = 1,
                Sizes { queries: 4.., .. } if sizes.queries <= sizes.keys => {
                    sizes.queries = 1 + random.below(3);
                }
                Sizes { keys: 4.., .. } => sizes.keys = 1 + random.below(3),
                _ => break,
            }
        }
        sizes
    }

    fn work(&self) -> usize {
        let rows = self.batch * self.kv_heads * self.group * self.queries;
        rows * self.keys * (self.d_k + self.d_v)
    }
}

fn width(random: &mut Random) -> usize {
    match random.below(10) {
        0 => random.pick(&[48, 64, 80, 96, 128]),
        1 => random.pick(&[129, 192, 255, 256, 300, 511, 575, 576]),
        _ => 1 + random.below(40),
    }
}

fn cut(random: &mut Random, total: usize, parts: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..parts).map(|_| random.below(total + 1)).collect();
    ends.push(total);
    ends.sort_unstable();
    let mut before = 0;
    let length = |&end: &usize| end - std::mem::replace(&mut before, end);
    ends.iter().map(length).collect()
}

impl Call {
    /// A random call, of which the definition takes milliseconds.
    pub fn random(random: &mut Random) -> Call {
        Call::random_of_work(random, 0, 4_000_000)
    }

    /// A random call of about that many multiplications, if it has any.
    pub fn random_of_work(random: &mut Random, least: usize, most: usize) -> Call {
        let sizes = Sizes::random(random, least, most);
        let mut call = arrays(random, &sizes);
        let Sizes { batch, queries, .. } = sizes;
        let (heads, keys) = (sizes.kv_heads * sizes.group, sizes.keys);
        call.scale = scale(random);
        if random.chance(6) {
            call.softcap = Some(random.pick(&[1e-3, 0.5, 5.0, 30.0, 1e30]));
        }
        let shape = [batch, heads, queries, keys];
        if random.chance(4) {
            bias(random, shape, &mut call);
        }
        while call.masks.len() < 3 && random.chance(4) {
            call.masks.push((mask(random, shape), random.chance(2)));
        }
        if random.chance(6) {
            let slope = |_| random.pick(&[0.0, 0.5, 0.2, 0.01, -0.1]) * random.number();
            call.alibi = Some((0..heads).map(slope).collect());
        }
        if random.chance(6) {
            let parts = 1 + random.below(5);
            let of_queries = cut(random, queries, parts);
            let of_keys = if queries == keys {
                of_queries.clone()
            } else {
                cut(random, keys, parts)
            };
            call.documents = Some((of_queries, of_keys));
        }
        call.causal = causal(random, &call);
        if random.chance(4) {
            let mut side = || match random.below(8) {
                0 => Some(usize::MAX),
                1 => Some(0),
                2..=4 => Some(random.below(40)),
                _ => None,
            };
            call.window = Some(Window {
                back: side(),
                forward: side(),
            });
        }
        if random.chance(5) {
            let length = |_| match random.below(4) {
                0 => keys,
                _ => random.below(keys + 1),
            };
            call.lengths = Some((0..batch).map(length).collect());
        }
        if random.chance(5) {
            let sink = |_| match random.below(12) {
                0 => f64::NEG_INFINITY,
                1 => random.pick(&[100.0, -100.0, 1e30]),
                _ => random.number() * 4.0,
            };
            call.sinks = Some((0..heads).map(sink).collect());
        }
        if random.chance(8) {
            call.dropout = Some(Dropout {
                p: random.pick(&[0.0, 0.1, 0.5, 0.9]),
                seed: random.bits(),
            });
        }
        if random.chance(20) {
            call.empty_rows = EmptyRows::Error;
        }
        if random.chance(8) {
            spoil(random, &mut call);
        }
        call
    }

    /// Layouts of q, k and v.
    pub fn layouts(random: &mut Random) -> [Layout; 3] {
        match random.below(4) {
            0 => [Layout::Plain; 3],
            1 => [Layout::Blhd; 3],
            _ => std::array::from_fn(|_| random.pick(&LAYOUTS)),
        }
    }
}

fn arrays(random: &mut Random, sizes: &Sizes) -> Call {
    let &Sizes {
        batch,
        kv_heads,
        keys,
        ..
    } = sizes;
    let past = match random.below(8) {
        0 => keys,
        1 | 2 => random.below(keys + 1),
        _ => 0,
    };
    let spread = random.pick(&[1.0, 1.0, 1.0, 1.0, 1e-3, 3.0]);
    let mut numbers = random.numbers();
    let mut array = |shape: [usize; 4]| {
        let shared = std::array::from_fn(|_| random.chance(40));
        Array::shared(shape, shared, Layout::Plain, |_| {
            f64::from((numbers.normal() * spread) as f32)
        })
    };
    let heads = kv_heads * sizes.group;
    let mut call = Call::plain(
        array([batch, heads, sizes.queries, sizes.d_k]),
        array([batch, kv_heads, keys - past, sizes.d_k]),
        array([batch, kv_heads, keys - past, sizes.d_v]),
    );
    if past > 0 {
        let k = array([batch, kv_heads, past, sizes.d_k]);
        call.past = Some((k, array([batch, kv_heads, past, sizes.d_v])));
    }
    call
}

fn scale(random: &mut Random) -> Scale {
    match random.below(16) {
        0 | 1 => Scale::Factor(0.0),
        2 | 3 => Scale::Factor(-0.3),
        4 | 5 => Scale::Factor(random.number() * 3.0),
        6 => Scale::Factor(random.pick(&[1e-37, -1e-30, 1e-10, 1e6, -1e30, 1e38])),
        _ => Scale::InverseSqrt,
    }
}

/// Any axis may be of length 1 and serve all.
fn spread(random: &mut Random, shape: [usize; 4]) -> [usize; 4] {
    shape.map(|size| if random.chance(2) { 1 } else { size })
}

fn bias(random: &mut Random, shape: [usize; 4], call: &mut Call) {
    call.bias_dtype = random.pick(&[DType::F16, DType::Bf16, DType::F32, DType::F64]);
    call.bias_layout = random.pick(&LAYOUTS);
    let lowest = match call.bias_dtype {
        DType::F16 => -65504.0,
        DType::Bf16 => bf16::MIN.to_f64(),
        DType::F32 => f64::from(f32::MIN),
        DType::F64 => f64::MIN,
    };
    let infinite = random.pick(&[0, 0, 3, 30]);
    let finite = random.pick(&[0, 50]);
    let mut numbers = random.numbers();
    let dtype = call.bias_dtype;
    let array = Array::new(spread(random, shape), Layout::Plain, |_| {
        if infinite > 0 && numbers.chance(infinite) {
            return f64::NEG_INFINITY;
        }
        if finite > 0 && numbers.chance(finite) {
            return lowest;
        }
        let x = numbers.normal() * 2.0;
        match dtype {
            DType::F16 => f16::from_f64(x).to_f64(),
            DType::Bf16 => bf16::from_f64(x).to_f64(),
            DType::F32 => f64::from(x as f32),
            DType::F64 => x,
        }
    });
    call.bias = Some(array);
}

/// Kept where true, or dropped: what is drawn is a pattern of `true`.
fn mask(random: &mut Random, shape: [usize; 4]) -> Array<bool> {
    let [_, _, queries, keys] = shape;
    let layout = random.pick(&LAYOUTS);
    let one_in = random.pick(&[2, 5, 50]);
    let (row, key) = (random.below(queries + 1), random.below(keys + 1));
    let (pattern, flip) = (random.below(6), random.chance(2));
    let mut numbers = random.numbers();
    Array::new(spread(random, shape), layout, |[_, _, i, j]| {
        flip != match pattern {
            0 => j < key, // whole blocks
            1 => i < row, // whole rows
            2 => i / 3 % 2 == j / 16 % 2,
            _ => numbers.chance(one_in),
        }
    })
}

fn causal(random: &mut Random, call: &Call) -> Option<Causal> {
    let (queries, keys) = (call.q.shape[2] as i64, call.keys() as i64);
    let square = match &call.documents {
        Some((queries, keys)) => queries == keys,
        None => queries == keys,
    };
    match random.below(10) {
        0 | 1 => Some(Causal::BottomRight),
        2 | 3 if square => Some(Causal::Square),
        2 => Some(Causal::TopLeft),
        3 => Some(Causal::Offset(random.below(keys as usize + 20) as i64 - 10)),
        4 => Some(Causal::Offset(random.pick(&[
            -1,
            -queries / 2,
            -queries - 3,
            keys + 3,
            1_000_000_007,
            i64::MIN,
            i64::MAX,
        ]))),
        _ => None,
    }
}

/// Puts NaN and infinities at a few keys, values and queries.
fn spoil(random: &mut Random, call: &mut Call) {
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for _ in 0..1 + random.below(4) {
        let array = match (random.below(9), &mut call.past) {
            (0..4, None) => &mut call.k,
            (0..4, Some((k, _))) => k,
            (4..8, None) => &mut call.v,
            (4..8, Some((_, v))) => v,
            _ => &mut call.q,
        };
        if !array.data.is_empty() {
            let at = random.below(array.data.len());
            array.data[at] = random.pick(&bad);
        }
    }
}
