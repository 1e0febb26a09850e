//! `qkv bench`: how fast this machine computes attention, as a share of what it could do, and
//! beside others.

mod case;
mod clock;
mod compare;
mod data;
mod job;
mod limits;
mod machine;
mod measure;
mod memory;
mod peers;
mod record;
mod table;

use crate::args::{BenchArgs, Dtype, MaskKind, Mode, Peer};
use crate::error::{Error, Names, Result};
use crate::suite::{CASES, Case};
use crate::workers::{self, Workers};
use crate::{interrupt, output};
use data::Data;
use measure::{Setting, measure};
use peers::Process;
use qkv::{AnyView, Float, View};
use qkv_io::Chunk;
use qkv_io::half::{bf16, f16};
use record::Record;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<()> {
    refuse_what_there_is_not(args)?;
    let file = args.file.as_deref().map(target).transpose()?;
    output::check_places([("-o", file.as_ref().map(Target::path))])?;
    warn_of_few_cores(&args.threads);
    let bench = Bench {
        args,
        cases: if args.case.is_empty() {
            let all = CASES.iter();
            all.filter(|case| args.mode == Mode::Forward || case.is_trained())
                .collect()
        } else {
            unique(&args.case)
        },
        masks: unique(&args.mask),
        peers: unique(&args.against),
    };
    match args.dtype {
        Dtype::F64 => bench.run::<f64>(file.as_ref()),
        Dtype::F32 => bench.run::<f32>(file.as_ref()),
        Dtype::F16 => bench.run::<f16>(file.as_ref()),
        Dtype::Bf16 => bench.run::<bf16>(file.as_ref()),
    }
}

fn unique<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut found = Vec::new();
    for &item in list {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

fn refuse_what_there_is_not(args: &BenchArgs) -> Result<()> {
    let refuse = |argument, value: &str, remedy: &str| {
        Err(Error::Value {
            argument,
            value: value.into(),
            remedy: remedy.into(),
        })
    };
    let other = args.against.iter().find(|peer| **peer != Peer::Torch);
    if let (Mode::Backward, Some(peer)) = (args.mode, other) {
        let remedy = "it computes no gradients: measure against torch, or forward";
        return refuse("--against", peer.name(), remedy);
    }
    Ok(())
}

/// Threads that share a core wait for each other: what is measured then is not what it seems.
fn warn_of_few_cores(threads: &[usize]) {
    let cores = workers::cores();
    let Some(most) = threads.iter().max().filter(|most| **most > cores) else {
        return;
    };
    let cores = qkv_io::many(cores as u64, "core");
    output::remark(&format!(
        "qkv: warning: --threads: {most} threads share {cores} and wait for each other: their figures \
         are not those of {most} cores; give no more threads than cores"
    ));
}

/// Where the raw results go.
enum Target {
    /// The file that was named, which may be there already.
    Named(PathBuf),
    /// A new one in a folder: measurements that are there stay.
    New(PathBuf),
}

impl Target {
    fn path(&self) -> &Path {
        match self {
            Target::Named(path) | Target::New(path) => path,
        }
    }
}

/// The file to write; in a folder, one named after the date and the machine.
fn target(path: &Path) -> Result<Target> {
    if path == Path::new("-") {
        return Err(Error::Value {
            argument: "-o",
            value: "standard output".into(),
            remedy: "--json prints the lines there; give -o a file or a folder".into(),
        });
    }
    if !path.is_dir() {
        return Ok(Target::Named(path.to_owned()));
    }
    let plain = |text: &str| -> String {
        let words: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        words.join("-").to_lowercase()
    };
    let now = machine::now();
    let (day, time) = now.split_once('T').unwrap_or((&now, ""));
    let time: String = time.chars().filter(char::is_ascii_digit).take(6).collect();
    let processor = plain(&machine::processor());
    let cores = workers::cores();
    let name = format!("{day}-{time}-{processor}-{cores}.jsonl");
    Ok(Target::New(path.join(name)))
}

/// A folder for the arrays that others read.
fn temporary_folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|source| {
        Error::io("TMPDIR")(qkv_io::Error::Io {
            action: "make a folder in",
            path: std::env::temp_dir().display().to_string(),
            source,
        })
    })
}

struct Bench<'a> {
    args: &'a BenchArgs,
    cases: Vec<&'static Case>,
    masks: Vec<MaskKind>,
    peers: Vec<Peer>,
}

/// Threads, what they can do, and the others on as many.
struct Group {
    workers: Workers,
    fma_rate: f64,
    read_rate: f64,
    processes: Vec<Process>,
}

impl Bench<'_> {
    fn run<T: Float>(&self, file: Option<&Target>) -> Result<()>
    where
        for<'a> AnyView<'a>: From<View<'a, T>>,
        for<'a> Chunk<'a>: From<&'a [T]>,
    {
        if self.args.extra_bytes {
            let workers = Workers::new(self.args.threads[0], &self.args.engine)?;
            return memory::print::<T>(self.args, self.cases[0], self.masks[0], &workers);
        }
        interrupt::watch();
        let shared = match self.peers.is_empty() {
            true => None,
            false => Some(temporary_folder()?),
        };
        let load = machine::load();
        let mut groups = unique(&self.args.threads)
            .into_iter()
            .map(|threads| self.group::<T>(threads))
            .collect::<Result<Vec<_>>>()?;
        self.say(|| {
            let mut lines = self.opening(&groups);
            lines.push(String::new());
            lines.push(table::head(&self.peers));
            lines
        })?;
        let (mut records, mut left_out) = (Vec::new(), Vec::new());
        for &case in &self.cases {
            for &mask in &self.masks {
                let data = Data::<T>::new(case, mask, self.args.mode)
                    .map_err(Error::engine(Names::Given))?;
                if let Some(folder) = &shared {
                    peers::write(case, &data, self.args.mode, folder.path())?;
                }
                for group in &mut groups {
                    interrupt::check()?;
                    let setting = Setting {
                        args: self.args,
                        case,
                        mask,
                        data: &data,
                        workers: &group.workers,
                        read_rate: group.read_rate,
                        folder: shared.as_ref().map(|folder| folder.path()),
                    };
                    let record = measure(&setting, &mut group.processes, &mut left_out)?;
                    if self.args.json {
                        output::print(format!("{}\n", record.json()).as_bytes())?;
                    }
                    self.say(|| vec![table::row(&record, &self.peers)])?;
                    records.push(record);
                }
            }
        }
        self.say(|| {
            let mut lines = vec![String::new()];
            lines.extend(table::foot(&records, &self.peers));
            if !left_out.is_empty() {
                lines.push("Left out:".into());
                lines.extend(left_out.iter().map(|note| format!("  {note}")));
            }
            lines
        })?;
        match file {
            Some(file) => self.save(file, load, &groups, &records, &left_out),
            None => Ok(()),
        }
    }

    fn group<T: Float>(&self, threads: usize) -> Result<Group> {
        let workers = Workers::new(threads, &self.args.engine)?;
        let processes = self.peers.iter().map(|&peer| Process::start(peer, threads));
        Ok(Group {
            fma_rate: workers.fma_rate::<T>()?,
            read_rate: workers.read_rate(),
            processes: processes.collect::<Result<_>>()?,
            workers,
        })
    }

    /// Prints lines for people.
    fn say(&self, lines: impl FnOnce() -> Vec<String>) -> Result<()> {
        if self.args.json {
            return Ok(());
        }
        let mut text = lines().join("\n");
        text.push('\n');
        output::print(text.as_bytes())
    }

    /// Which machine, and what it can do.
    fn opening(&self, groups: &[Group]) -> Vec<String> {
        let mut lines = vec![format!(
            "qkv {}, {}, {}, on {}, {}",
            env!("CARGO_PKG_VERSION"),
            self.args.mode.name(),
            self.args.dtype.name(),
            machine::processor(),
            qkv_io::many(workers::cores() as u64, "core"),
        )];
        lines.extend(groups.iter().map(|group| {
            format!(
                "measured limits of {}: {:.0} GFLOP/s of multiply-adds, {:.1} GB/s of reading",
                qkv_io::many(group.workers.threads as u64, "thread"),
                group.fma_rate * 1e-9,
                group.read_rate * 1e-9,
            )
        }));
        lines
    }

    /// Writes the raw results, after a line about where they are from.
    fn save(
        &self,
        file: &Target,
        load: Option<f64>,
        groups: &[Group],
        records: &[Record],
        left_out: &[String],
    ) -> Result<()> {
        let mut versions = serde_json::Map::new();
        versions.insert("qkv".into(), env!("CARGO_PKG_VERSION").into());
        for process in groups.iter().flat_map(|group| &group.processes) {
            versions.insert(process.peer.name().into(), process.version.clone().into());
        }
        let limits: Vec<Value> = groups
            .iter()
            .map(|group| {
                json!({
                    "threads": group.workers.threads,
                    "fma_gflops": group.fma_rate * 1e-9,
                    "read_gbytes": group.read_rate * 1e-9,
                })
            })
            .collect();
        let mut operators: Vec<String> = records
            .iter()
            .flat_map(|record| {
                let others = record.others.iter();
                others.map(|other| format!("{} {}", other.peer.name(), other.operator))
            })
            .collect();
        operators.sort();
        operators.dedup();
        let first = json!({
            "date": machine::now(),
            "cpu": machine::processor(),
            "cores": workers::cores(),
            "os": machine::system(),
            "load_before_and_after": [load, machine::load()],
            "versions": versions,
            "limits": limits,
            "operators": operators,
            "left_out": left_out,
        });
        let mut text = format!("{first}\n");
        for record in records {
            text += &format!("{}\n", record.json());
        }
        let written = match file {
            Target::Named(path) => qkv_io::write_file(path, text.as_bytes()),
            Target::New(path) => qkv_io::write_new_file(path, text.as_bytes()).map(drop),
        };
        written.map_err(Error::io("-o"))
    }
}
