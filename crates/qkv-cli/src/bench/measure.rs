//! One case: ours, the limits, and the others, in turns.

use super::clock::median;
use super::compare::Judge;
use super::data::Data;
use super::job::Job;
use super::limits::Cost;
use super::memory;
use super::peers::Process;
use super::record::{Limit, Other, Record};
use crate::args::{BenchArgs, MaskKind, Mode};
use crate::error::{Error, Names, Result};
use crate::interrupt;
use crate::suite::Case;
use crate::workers::Workers;
use qkv::{AnyView, Float, View};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often everybody has a turn.
const ROUNDS: u32 = 5;

/// A clock is read after this many seconds at the earliest.
const SHORTEST: f64 = 2e-3;

/// What would take less than this many seconds is ruled by the cost of a call.
const CALL: f64 = 10e-6;

/// What is measured, and with whom.
pub struct Setting<'a, T: Float> {
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
    let mode = args.mode;
    let mut job = Job::new(case, data, mode, &workers.options).map_err(&engine)?;
    // The first call starts threads and takes memory.
    setting.cost(1, &mut job)?;
    let mut repeats = 1;
    while setting.cost(repeats, &mut job)?.wall * (repeats as f64) < SHORTEST {
        repeats *= 2;
    }
    let mut own = Own::default();
    let mut others = Vec::new();
    if processes.is_empty() {
        for _ in 0..ROUNDS {
            own.take_turn(setting, repeats, &mut job)?;
        }
    }
    // One after the other, since each holds arrays of its own.
    for process in processes {
        let Some(folder) = setting.folder else { break };
        let mut notes = Vec::new();
        let operators = process.load(&setting.judge(&job)?, folder, &mut notes)?;
        let (mask, threads) = (mask.name(), workers.threads);
        let place = format!("{}, mask {mask}, T {threads}", case.name);
        left_out.extend(notes.iter().map(|note| format!("{place}: {note}")));
        let begin = own.costs.len();
        let mut costs = vec![Vec::new(); operators.len()];
        for _ in 0..ROUNDS {
            own.take_turn(setting, repeats, &mut job)?;
            for (operator, costs) in operators.iter().zip(&mut costs) {
                costs.extend(process.time(operator, setting.turn().as_secs_f64())?);
            }
        }
        process.free()?;
        let fastest = operators
            .iter()
            .zip(&costs)
            .filter(|(_, costs)| !costs.is_empty())
            .map(|(operator, costs)| (median(costs), operator))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        others.extend(fastest.map(|(cost, operator)| Other {
            peer: process.peer,
            operator: operator.name.clone(),
            cpu_ms: cost * 1e3,
            ratio: cost / median(&own.costs[begin..]),
        }));
    }
    let cpu = median(&own.costs);
    let flops = case.flops(mode);
    let least = [
        (Limit::Fma, flops / median(&own.rates)),
        (
            Limit::Bandwidth,
            case.bytes(size_of::<T>(), mask, mode) / setting.read_rate,
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
        mode,
        mask,
        threads: workers.threads,
        path: workers.options.isa().map_err(&engine)?.of(T::DTYPE).name(),
        ms: median(&own.walls) * 1e3,
        cpu_ms: cpu * 1e3,
        gflops: flops / cpu * 1e-9,
        share: limited.then_some(least / cpu),
        limit: if limited { limit } else { Limit::None },
        extra_bytes: memory::extra_bytes(args, case, mask, workers.threads),
        others,
    })
}

/// Calls of qkv, and multiply-adds between them.
#[derive(Default)]
struct Own {
    walls: Vec<f64>,
    costs: Vec<f64>,
    rates: Vec<f64>,
}

impl Own {
    /// Runs the case for a while.
    fn take_turn<T: Float>(
        &mut self,
        setting: &Setting<'_, T>,
        repeats: usize,
        job: &mut Job<T>,
    ) -> Result<()>
    where
        for<'a> AnyView<'a>: From<View<'a, T>>,
    {
        let begin = Instant::now();
        loop {
            let cost = setting.cost(repeats, job)?;
            self.walls.push(cost.wall);
            self.costs.push(cost.cpu);
            self.rates.push(setting.workers.fma_burst_rate::<T>()?);
            interrupt::check()?;
            if begin.elapsed() >= setting.turn() {
                return Ok(());
            }
        }
    }
}

impl<T: Float> Setting<'_, T>
where
    for<'a> AnyView<'a>: From<View<'a, T>>,
{
    /// How long a turn is.
    fn turn(&self) -> Duration {
        Duration::from_millis(self.args.repeat as u64) / ROUNDS
    }

    /// What so many calls cost, each.
    fn cost(&self, repeats: usize, job: &mut Job<T>) -> Result<Cost> {
        let engine = Error::engine(Names::Given);
        self.workers.cost(repeats, || {
            job.once(self.case, self.data, &self.workers.options)
                .map_err(&engine)
        })
    }

    /// What others are compared with.
    fn judge<'j>(&'j self, job: &'j Job<T>) -> Result<Judge<'j, T>> {
        let weight = match self.args.mode {
            Mode::Forward => 0.0,
            Mode::Backward => job
                .most_weight(self.case, self.data, &self.workers.options)
                .map_err(Error::engine(Names::Given))?,
        };
        Ok(Judge {
            case: self.case,
            data: self.data,
            mode: self.args.mode,
            ours: job.result(),
            weight,
        })
    }
}
