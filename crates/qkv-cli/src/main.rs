//! The command `qkv`: attention, every step of it.
//!
//! Exit status 0, 2 after an error, 1 where `qkv check` finds a difference, 130 after Ctrl-C. Nothing is computed here: arguments become the engine's
//! types, and its steps become text, JSON or a file.

mod args;
mod arrays;
mod bench;
mod check;
mod draw;
mod error;
mod explain;
mod interrupt;
mod memory;
mod more;
mod operands;
mod options;
mod output;
mod run;
mod suite;
mod trace;
mod usage;
mod weights;
mod workers;

use args::{Cli, Command};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use error::{Error, Result};
use std::io::Write;
use std::process::ExitCode;

/// Characters of a message, beyond which its middle is left out.
const LONGEST_MESSAGE: usize = 2000;

fn main() -> ExitCode {
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(Error::NoCommand(help)) => {
            let _ = write!(std::io::stderr(), "{help}");
            ExitCode::from(2)
        }
        Err(Error::Interrupted) => ExitCode::from(interrupt::EXIT_STATUS),
        Err(error) => {
            // Whatever is quoted in it, a message is one line that does nothing to the terminal. If
            // standard error is gone too, the exit status has to do.
            let message = qkv_io::shown_within(&error.to_string(), LONGEST_MESSAGE);
            let _ = writeln!(std::io::stderr(), "qkv: {message}");
            ExitCode::from(2)
        }
    }
}

/// The exit status, where nothing went wrong.
fn run() -> Result<u8> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Error::NoCommand(error.render().to_string()));
        }
        Err(error) if error.use_stderr() => return Err(usage::error(&error)),
        Err(help) => {
            output::print(help.render().to_string().as_bytes())?;
            return Ok(0);
        }
    };
    match cli.command {
        Command::Check(args) => return check::run(*args),
        Command::Explain(args) => explain::run(*args),
        Command::Run(args) => run::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "qkv", &mut script);
            output::print(&script)
        }
        Command::Man { command } => man(command.as_deref()),
    }?;
    Ok(0)
}

/// The manual page of qkv or of one of its commands.
fn man(command: Option<&str>) -> Result<()> {
    let mut qkv = Cli::command().bin_name("qkv");
    qkv.build();
    let page = match command {
        None => qkv,
        Some(name) => {
            let found = qkv
                .get_subcommands()
                .find(|command| command.get_name() == name);
            let Some(found) = found else {
                let known: Vec<&str> = qkv.get_subcommands().map(|c| c.get_name()).collect();
                return Err(Error::Value {
                    argument: "COMMAND",
                    value: format!("\"{}\"", qkv_io::shown(name)),
                    remedy: format!("give one of {}", known.join(", ")),
                });
            };
            found.clone()
        }
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut roff)
        .map_err(Error::Stdout)?;
    output::print(&roff)
}
