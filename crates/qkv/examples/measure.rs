//! How fast the fast path is on this machine, as a share of what its arithmetic could do.
//!
//! ```text
//! cargo run --release --example measure -- [CASE…] [--threads N] [--f64] [--any-order]
//!     [--repeat MILLISECONDS]
//! ```
//!
//! A case is one of those below, or seven sizes as they are written there: `1,8,8,77,4096,40,40`.
//! Every case is run many times for a short while, in turns with the measurement of the limit, and
//! the median of CPU time (of this thread, or of the process over the threads) is taken, since
//! wall time says little on a machine that others use. `best` is the share of the fastest tenth.

use qkv::{
    AnyView, Attention, Bias, Cache, Causal, Inputs, Mask, Options, View, ViewMut, Window,
    fma_burst, forward_into,
};
use rustix::time::{ClockId, clock_gettime};
use std::num::NonZeroUsize;
use std::time::Instant;

/// B, H, H_kv, L_q, L_k, d_k, d_v
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    shape: [usize; 7],
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Full,
    Causal,
    Window(usize),
    KeepMask,
    FloatMask,
    /// Keys and values in a [`Cache`].
    Cache,
}

const CASES: &[Case] = &[
    case("encoder-long", [1, 12, 12, 2048, 2048, 64, 64], Kind::Full),
    case(
        "encoder-long-bool",
        [1, 12, 12, 2048, 2048, 64, 64],
        Kind::KeepMask,
    ),
    case(
        "encoder-long-float",
        [1, 12, 12, 2048, 2048, 64, 64],
        Kind::FloatMask,
    ),
    case("prefill-1k", [1, 32, 8, 1024, 1024, 128, 128], Kind::Causal),
    case("prefill-4k", [1, 8, 2, 4096, 4096, 128, 128], Kind::Causal),
    case("long-16k", [1, 2, 2, 16384, 16384, 64, 64], Kind::Causal),
    case("bert-short", [8, 12, 12, 128, 128, 64, 64], Kind::Full),
    case("vision", [1, 12, 12, 197, 197, 64, 64], Kind::Full),
    case("cross", [1, 8, 8, 77, 4096, 40, 40], Kind::Full),
    case("cross-img", [1, 8, 8, 4096, 77, 40, 40], Kind::Full),
    case(
        "window-4k",
        [1, 8, 2, 4096, 4096, 128, 128],
        Kind::Window(512),
    ),
    case("mla-1k", [1, 16, 16, 1024, 1024, 192, 128], Kind::Causal),
    case("decode-1", [1, 32, 8, 1, 4096, 128, 128], Kind::Full),
    case("decode-batch", [16, 32, 8, 1, 2048, 128, 128], Kind::Full),
    case("decode-1-cache", [1, 32, 8, 1, 4096, 128, 128], Kind::Cache),
    case(
        "decode-batch-cache",
        [16, 32, 8, 1, 2048, 128, 128],
        Kind::Cache,
    ),
    case("tiny-2", [1, 1, 1, 2, 2, 2, 2], Kind::Full),
    case("tiny-16", [1, 4, 4, 16, 16, 32, 32], Kind::Full),
];

const fn case(name: &'static str, shape: [usize; 7], kind: Kind) -> Case {
    Case { name, shape, kind }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut names = Vec::new();
    let (mut threads, mut double, mut milliseconds) = (1, false, 400);
    let mut reproducible = true;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--threads" => threads = arguments.next().unwrap_or_default().parse()?,
            "--repeat" => milliseconds = arguments.next().unwrap_or_default().parse()?,
            "--f64" => double = true,
            "--any-order" => reproducible = false,
            _ => names.push(argument),
        }
    }
    let options = Options {
        threads: Some(NonZeroUsize::new(threads).ok_or("--threads 0")?),
        reproducible,
        ..Options::default()
    };
    println!(
        "{} threads={threads} {}",
        options.isa()?.name(),
        if double { "f64" } else { "f32" }
    );
    println!(
        "{:<20} {:>10} {:>10} {:>9} {:>7} {:>7} {:>9}",
        "case", "cpu ms", "wall ms", "GFLOP/s", "share", "best", "GB/s"
    );
    let given = names.iter().filter_map(|name| {
        let sizes: Option<Vec<usize>> = name.split(',').map(|size| size.parse().ok()).collect();
        Some(case("given", sizes?.try_into().ok()?, Kind::Full))
    });
    let known = CASES
        .iter()
        .filter(|case| names.is_empty() || names.iter().any(|name| name == case.name));
    for case in known.copied().chain(given) {
        let line = if double {
            measure::<f64>(&case, &options, milliseconds, |x| x)?
        } else {
            measure::<f32>(&case, &options, milliseconds, |x| x as f32)?
        };
        println!("{line}");
    }
    Ok(())
}

fn measure<T: qkv::Float>(
    case: &Case,
    options: &Options,
    milliseconds: u64,
    number: impl Fn(f64) -> T,
) -> Result<String, Box<dyn std::error::Error>>
where
    for<'a> AnyView<'a>: From<View<'a, T>>,
{
    let [b, h, h_kv, l_q, l_k, d_k, d_v] = case.shape;
    let mut random = Random(7);
    let mut numbers =
        |count: usize| -> Vec<T> { (0..count).map(|_| number(random.normal())).collect() };
    let q = numbers(b * h * l_q * d_k);
    let k = numbers(b * h_kv * l_k * d_k);
    let v = numbers(b * h_kv * l_k * d_v);
    let keep: Vec<bool> = (0..l_q * l_k).map(|n| n % 10 != 3).collect();
    let bias = if case.kind == Kind::FloatMask {
        numbers(l_q * l_k)
    } else {
        Vec::new()
    };
    let queries = View::new(&q, &[b, h, l_q, d_k])?;
    let (keys, values) = (
        View::new(&k, &[b, h_kv, l_k, d_k])?,
        View::new(&v, &[b, h_kv, l_k, d_v])?,
    );
    let mut cache = Cache::new(b, h_kv, d_k, d_v);
    let inputs = if case.kind == Kind::Cache {
        cache.append(keys, values)?;
        cache.inputs(queries)?
    } else {
        Inputs::new(queries, keys, values)?
    };
    let mut attention = Attention::default();
    let mut pairs = (l_q * l_k) as f64;
    match case.kind {
        Kind::Full | Kind::Cache => {}
        Kind::Causal => {
            attention.causal = Some(Causal::BottomRight);
            pairs /= 2.0;
        }
        Kind::Window(back) => {
            attention.causal = Some(Causal::BottomRight);
            attention.window = Some(Window {
                back: Some(back),
                forward: None,
            });
            pairs = (0..l_q).map(|i| (i + 1).min(back + 1) as f64).sum();
        }
        Kind::KeepMask => attention
            .masks
            .push(Mask::keep(View::new(&keep, &[l_q, l_k])?)),
        Kind::FloatMask => attention.bias = Some(Bias(View::new(&bias, &[l_q, l_k])?.into())),
    }
    let flops = 2.0 * (b * h * (d_k + d_v)) as f64 * pairs;
    let mut output = numbers(b * h * l_q * d_v);

    let alone = options.threads.is_some_and(|n| n.get() == 1);
    let clock = if alone {
        ClockId::ThreadCPUTime
    } else {
        ClockId::ProcessCPUTime
    };
    let cpu = || {
        let t = clock_gettime(clock);
        t.tv_sec as f64 + 1e-9 * t.tv_nsec as f64
    };
    let (mut costs, mut walls, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let begin = Instant::now();
    let mut repeats = 1;
    while begin.elapsed().as_millis() < u128::from(milliseconds) || costs.len() < 5 {
        let (wall, start) = (Instant::now(), cpu());
        for _ in 0..repeats {
            forward_into(
                &attention,
                &inputs,
                options,
                ViewMut::new(&mut output, &[b, h, l_q, d_v])?,
            )?;
        }
        let (cost, elapsed) = (cpu() - start, wall.elapsed().as_secs_f64());
        if cost < 1e-3 && costs.is_empty() {
            repeats *= 2; // a clock has to be read less often than that
            continue;
        }
        costs.push(cost / f64::from(repeats));
        walls.push(elapsed / f64::from(repeats));
        let start = cpu();
        let burnt = fma_burst::<T>(options, 20_000)?;
        rates.push(burnt as f64 / (cpu() - start));
    }
    let best = quantile(&mut costs, 0.1);
    let (cost, wall) = (quantile(&mut costs, 0.5), quantile(&mut walls, 0.5));
    let (limit, best_limit) = (quantile(&mut rates, 0.5), quantile(&mut rates, 0.9));
    let bytes = (size_of::<T>() * (k.len() + v.len())) as f64;
    Ok(format!(
        "{:<20} {:>10.5} {:>10.5} {:>9.1} {:>6.1}% {:>6.1}% {:>9.1}",
        case.name,
        cost * 1e3,
        wall * 1e3,
        flops / cost * 1e-9,
        100.0 * flops / cost / limit,
        100.0 * flops / best / best_limit,
        bytes / cost * 1e-9,
    ))
}

fn quantile(of: &mut [f64], share: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of[((of.len() - 1) as f64 * share).round() as usize]
}

/// SplitMix64, and normal numbers from it.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}
