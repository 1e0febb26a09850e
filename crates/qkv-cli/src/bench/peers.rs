//! Other libraries, each in a Python process of its own that waits while it is not asked.

use super::compare::Judge;
use super::data::Data;
use crate::args::{Mode, Peer};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::suite::Case;
use qkv::{DType, Float};
use qkv_io::{Chunk, Encoded, Encoding, encode, shown, shown_within};
use serde_json::{Value, json};
use std::env;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("peers.py");

/// One library on a number of threads.
pub struct Process {
    pub peer: Peer,
    pub version: String,
    threads: usize,
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Whether it has the operators of a case.
    is_loaded: bool,
}

/// An operator that computes what qkv computes.
pub struct Operator {
    pub name: String,
    index: usize,
}

/// The Python that is asked.
fn python() -> String {
    env::var("PYTHON")
        .ok()
        .filter(|python| !python.is_empty())
        .unwrap_or_else(|| "python3".into())
}

/// Why a Python could not be started, and what to do.
fn not_started(error: &io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "there is no such program".into(),
        ErrorKind::PermissionDenied => "that is no program, or you may not run it".into(),
        _ => format!("it could not be started ({})", qkv_io::reason(error)),
    };
    format!("{why}: install Python, or name one that is there in the variable PYTHON")
}

impl Process {
    /// Starts it and waits until the library is there.
    pub fn start(peer: Peer, threads: usize) -> Result<Process> {
        let python = python();
        let count = threads.to_string();
        let started = Command::new(&python)
            .args(["-c", SCRIPT, peer.name(), &count])
            .env("OMP_NUM_THREADS", &count)
            .env("MKL_NUM_THREADS", &count)
            .env("OPENBLAS_NUM_THREADS", &count)
            // Threads that wait sleep, so that their CPU time is work.
            .env("OMP_WAIT_POLICY", "passive")
            .env("GOMP_SPINCOUNT", "0")
            .env("KMP_BLOCKTIME", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let absent = |says: String| Error::Value {
            argument: "--against",
            value: format!("{} with {}", peer.name(), shown(&python)),
            remedy: says,
        };
        let mut child = started.map_err(|error| absent(not_started(&error)))?;
        let (Some(ask), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(absent("it takes no input".into()));
        };
        let mut process = Process {
            peer,
            version: String::new(),
            threads,
            child,
            ask,
            answers: BufReader::new(answers),
            is_loaded: false,
        };
        let Some(hello) = process.answer()? else {
            return Err(absent(format!(
                "it ended at once; try {} -c 'import {}'",
                shown(&python),
                peer.name()
            )));
        };
        if let Some(missing) = hello["missing"].as_str() {
            return Err(absent(format!(
                "{missing} is not installed there: {} -m pip install {}",
                shown(&python),
                peer.packages()
            )));
        }
        process.version = hello["version"].as_str().unwrap_or("unknown").to_owned();
        Ok(process)
    }

    /// The next answer; `None` if the process has ended.
    fn answer(&mut self) -> Result<Option<Value>> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        interrupt::check()?; // it has ended by the same Ctrl-C
        Ok(read.ok().and_then(|_| serde_json::from_str(&line).ok()))
    }

    /// As [`answer`](Self::answer); where there is none, another process takes its place.
    fn request(&mut self, request: &Value) -> Result<Option<Value>> {
        // If it has ended, the answer that is missing says so.
        let _ = writeln!(self.ask, "{request}").and_then(|()| self.ask.flush());
        let answer = self.answer()?;
        if answer.is_none() {
            *self = Process::start(self.peer, self.threads)?;
        }
        Ok(answer)
    }

    /// Builds each operator for a case and keeps those that give what qkv gives; the others go to
    /// `left_out` with the reason.
    pub fn load<T: Float>(
        &mut self,
        judge: &Judge<'_, T>,
        folder: &Path,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Operator>> {
        let Judge {
            case, data, mode, ..
        } = *judge;
        let mut arrays = vec!["q", "k", "v"];
        arrays.extend((mode == Mode::Backward).then_some("grad"));
        arrays.extend(data.keep.is_some().then_some("keep"));
        arrays.extend(data.bias.is_some().then_some("bias"));
        let answer = self.request(&json!({
            "do": "load",
            "folder": folder.to_string_lossy(),
            "arrays": arrays,
            "bf16": T::DTYPE == DType::Bf16,
            "causal": case.causal,
            "back": case.back,
        }))?;
        let Some(answer) = answer else {
            let name = self.peer.name();
            left_out.push(format!(
                "{name}: its process ended, perhaps for want of memory"
            ));
            return Ok(Vec::new());
        };
        self.is_loaded = true;
        let said = answer["operators"].as_array().cloned().unwrap_or_default();
        let mut operators = Vec::new();
        for (index, said) in said.iter().enumerate() {
            let name = said["name"].as_str().unwrap_or_default().to_owned();
            let fault = match said["file"].as_str() {
                Some(file) => {
                    let theirs = qkv_io::read_file(Path::new(file), None);
                    let theirs = theirs.map_err(Error::io("--against"))?;
                    judge.fault(&theirs)
                }
                None => Some(shown_within(
                    said["error"].as_str().unwrap_or("it failed"),
                    120,
                )),
            };
            match fault {
                None => operators.push(Operator { name, index }),
                Some(why) => left_out.push(format!("{} {name}: {why}", self.peer.name())),
            }
        }
        Ok(operators)
    }

    /// Runs an operator for some seconds: CPU seconds of each call, none if its process ended.
    pub fn time(&mut self, operator: &Operator, seconds: f64) -> Result<Vec<f64>> {
        if !self.is_loaded {
            return Ok(Vec::new());
        }
        let request = json!({"do": "time", "operator": operator.index, "seconds": seconds});
        let costs = match self.request(&request)? {
            Some(answer) => answer["cpu"].as_array().cloned().unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(costs.iter().filter_map(Value::as_f64).collect())
    }

    /// Gives the memory of the operators back.
    pub fn free(&mut self) -> Result<()> {
        if self.is_loaded {
            self.is_loaded = false;
            self.request(&json!({"do": "free"}))?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a case's arrays for the others to read.
pub fn write<T: Float>(case: &Case, data: &Data<T>, mode: Mode, folder: &Path) -> Result<()>
where
    for<'a> Chunk<'a>: From<&'a [T]>,
{
    let save = |name: &str, shape: &[usize], values: Chunk<'_>| {
        let path = folder.join(name).with_extension("npy");
        qkv_io::write_file_with(&path, |file| {
            let array = Encoded::whole(name, shape, values);
            encode(file, Encoding::Npy, vec![array], &[])
        })
        .map_err(Error::io("--against"))
    };
    let save_numbers = |name: &str, shape: &[usize], values: &[T]| {
        if T::DTYPE == DType::Bf16 {
            // npy has no bf16, and f32 has all its numbers.
            let wide: Vec<f32> = values.iter().map(|x| x.to_f64() as f32).collect();
            return save(name, shape, wide[..].into());
        }
        save(name, shape, values.into())
    };
    save_numbers("q", &case.q(), &data.q)?;
    save_numbers("k", &case.k(), &data.k)?;
    save_numbers("v", &case.v(), &data.v)?;
    if mode == Mode::Backward {
        save_numbers("grad", &case.output(), &data.grad)?;
    }
    if let Some(keep) = &data.keep {
        save("keep", &case.mask(), keep[..].into())?;
    }
    if let Some(bias) = &data.bias {
        save_numbers("bias", &case.mask(), bias)?;
    }
    Ok(())
}
