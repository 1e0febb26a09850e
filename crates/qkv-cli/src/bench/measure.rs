//! One case: ours, the limits, and the others, in turns.

use super::case::Case;
use super::clock::median;
use super::data::Data;
use super::memory;
use super::peers::{Operator, Process};
use super::record::{Limit, Other, Record};
use super::workers::Workers;
use crate::args::{BenchArgs, MaskKind};
use crate::error::{Error, Names, Result};
use crate::interrupt;
use qkv::{AnyView, Float, View, ViewMut, forward_into};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often everybody has a turn.
const ROUNDS: u32 = 5;

/// A clock is read after this many seconds at the earliest.
const SHORTEST: f64 = 2e-3;

/// What would take less than this many seconds is ruled by the cost of a call.
const CALL: f64 = 10e-6;

/// What is measured, and with whom.
pub struct Setting<'a, T> {
    pub args: &'a BenchArgs,
    pub case: &'static Case,
    pub mask: MaskKind,
    pub data: &'a Data<T>,
    pub workers: &'a Workers,
    /// Bytes a second.
    pub read_rate: f64,
    /// Where the others find the arrays.
    pub folder: Option<&'a Path>,
}

/// Runs the case; notes on operators that are no peers go to `left_out`.
pub fn measure<T: Float>(
    setting: &Setting<'_, T>,
    processes: &mut [Process],
    left_out: &mut Vec<String>,
) -> Result<Record>
where
    for<'a> AnyView<'a>: From<View<'a, T>>,
{
    let Setting {
        args,
        case,
        mask,
        data,
        workers,
        ..
    } = *setting;
    let engine = Error::engine(Names::Given);
    let inputs = data.inputs(case).map_err(&engine)?;
    let attention = case.attention(data).map_err(&engine)?;
    let shape = case.output();
    let mut output = vec![T::from_f64(0.0); shape.iter().product()];
    let mut call = || -> Result<()> {
        let view = ViewMut::new(&mut output, &shape).map_err(&engine)?;
        forward_into(&attention, &inputs, &workers.options, view).map_err(&engine)?;
        Ok(())
    };
    // The first call starts threads and takes memory.
    workers.run(&mut call)?;
    let mut repeats = 1;
    while workers.cost(repeats, &mut call)?.wall * (repeats as f64) < SHORTEST {
        repeats *= 2;
    }
    let mut others = Vec::new();
    for (at, process) in processes.iter_mut().enumerate() {
        let Some(folder) = setting.folder else { break };
        let mut notes = Vec::new();
        let operators = process.load(case, (data, &output), folder, &mut notes)?;
        let mask = mask.name();
        let threads = workers.threads;
        left_out.extend(
            notes
                .iter()
                .map(|note| format!("{}, mask {mask}, T {threads}: {note}", case.name)),
        );
        others.extend(operators.into_iter().map(|operator| Candidate {
            process: at,
            operator,
            costs: Vec::new(),
        }));
    }
    let mut call = || -> Result<()> {
        let view = ViewMut::new(&mut output, &shape).map_err(&engine)?;
        forward_into(&attention, &inputs, &workers.options, view).map_err(&engine)?;
        Ok(())
    };
    let turn = Duration::from_millis(args.repeat as u64) / ROUNDS;
    let (mut walls, mut costs, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        loop {
            let cost = workers.cost(repeats, &mut call)?;
            walls.push(cost.wall);
            costs.push(cost.cpu);
            rates.push(workers.fma_burst_rate::<T>()?);
            interrupt::check()?;
            if begin.elapsed() >= turn {
                break;
            }
        }
        for other in &mut others {
            let process = &mut processes[other.process];
            let costs = process.time(&other.operator, turn.as_secs_f64())?;
            other.costs.extend(costs);
        }
    }
    let cpu = median(&costs);
    let flops = case.flops();
    let least = [
        (Limit::Fma, flops / median(&rates)),
        (
            Limit::Bandwidth,
            case.bytes(size_of::<T>(), mask) / setting.read_rate,
        ),
    ];
    let (limit, least) = if least[0].1 >= least[1].1 {
        least[0]
    } else {
        least[1]
    };
    let limited = least >= CALL;
    Ok(Record {
        case: case.name,
        dtype: args.dtype,
        mask,
        threads: workers.threads,
        path: workers.options.isa().map_err(Error::about("--isa"))?.name(),
        ms: median(&walls) * 1e3,
        cpu_ms: cpu * 1e3,
        gflops: flops / cpu * 1e-9,
        share: limited.then_some(least / cpu),
        limit: if limited { limit } else { Limit::None },
        extra_bytes: memory::extra_bytes(args, case, mask, workers.threads),
        others: processes
            .iter()
            .enumerate()
            .filter_map(|(at, process)| {
                let own = others.iter().filter(|other| other.process == at);
                let fastest = own
                    .map(|other| (median(&other.costs), &other.operator.name))
                    .min_by(|a, b| a.0.total_cmp(&b.0))?;
                Some(Other {
                    peer: process.peer,
                    operator: fastest.1.clone(),
                    cpu_ms: fastest.0 * 1e3,
                    ratio: fastest.0 / cpu,
                })
            })
            .collect(),
    })
}

/// An operator that may be its library's fastest.
struct Candidate {
    process: usize,
    operator: Operator,
    costs: Vec<f64>,
}
