//! `qkv explain --exercise`: a sheet and its key.

mod random;

use crate::args::{Cli, ExplainArgs, Problem};
use crate::arrays::Reader;
use crate::error::{Error, Result};
use crate::output::{self, Kind, Target};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use qkv_report::{Lang, NoExercise, Paper, Settings, Subject};
use std::env;
use std::path::{Path, PathBuf};

/// Where an exercise goes.
pub struct Exercise {
    paper: Paper,
    sheet: PathBuf,
    /// The sheet's answers.
    pub key: PathBuf,
    /// Words of the command that were drawn, besides the arrays.
    drawn: Vec<String>,
    /// What the sheet says about them.
    note: Option<String>,
}

/// More heads are not drawn.
const MOST_HEADS: usize = 8;

/// Options that say how something looks, not what is computed.
const LOOKS: [&str; 9] = [
    "exercise", "output", "format", "json", "lang", "digits", "width", "color", "row",
];

impl Exercise {
    /// From the options, if it is asked for; a drawn problem is put into them.
    pub fn new(args: &mut ExplainArgs, target: &Target, lang: Lang) -> Result<Option<Self>> {
        let Some(problem) = args.exercise.exercise else {
            return Ok(None);
        };
        let beside = [
            ("--contrast", args.more.contrast),
            ("--permute", args.more.permute.is_some()),
            ("--next-token", args.more.next_token),
        ];
        if let Some((argument, _)) = beside.iter().find(|(_, given)| *given) {
            return Err(Error::Conflict {
                argument,
                other: "--exercise".into(),
                remedy: "it is shown beside the results, which a sheet leaves blank: make two files",
            });
        }
        if args.gradient.backward && !args.row.is_empty() {
            return Err(Error::Conflict {
                argument: "--row",
                other: "--exercise --backward".into(),
                remedy: "the gradients of keys and values add up over all queries: leave it out",
            });
        }
        let paper = match target.kind() {
            Kind::Text => Paper::Text,
            Kind::Markdown => Paper::Markdown,
            Kind::Latex => Paper::Latex,
            Kind::Html => Paper::Html,
            Kind::Json | Kind::Safetensors => return Err(for_programs(target.kind())),
        };
        let Some(sheet) = target.file() else {
            return Err(Error::Missing {
                argument: "-o".into(),
                remedy: "--exercise writes two files, the sheet and its key: name the sheet, \
                         for example -o sheet.md"
                    .into(),
            });
        };
        let mut exercise = Exercise {
            paper,
            sheet: sheet.to_owned(),
            key: key_of(sheet),
            drawn: Vec::new(),
            note: None,
        };
        if problem == Problem::Random {
            refuse_arrays(args)?;
            if args.inputs.heads.max(args.inputs.kv_heads) > Some(MOST_HEADS) {
                return Err(NoExercise::Large.into());
            }
            if random::fill(args) {
                exercise.drawn.push("--causal".into());
            }
            exercise.note = Some(drawn_from(args.attention.seed(), lang));
        }
        Ok(Some(exercise))
    }

    /// Refuses to overwrite an input with the key.
    pub fn check_inputs(&self, reader: &Reader<'_>) -> Result<()> {
        output::refuse_input("-o", reader, &self.key)
    }

    /// Writes both files and says which.
    pub fn write(
        &self,
        mut subject: Subject<'_>,
        settings: &Settings,
        literals: &[(&'static str, String)],
    ) -> Result<()> {
        subject.notes.extend(self.note.clone());
        let command = self.command(literals);
        let made = qkv_report::exercise(&subject, settings, self.paper, &command)?;
        qkv_io::write_files(&[
            (&self.sheet, made.sheet.as_bytes()),
            (&self.key, made.key.as_bytes()),
        ])
        .map_err(Error::io("-o"))?;
        let (sheet, key) = (self.sheet.display(), self.key.display());
        output::print(format!("{sheet}\n{key}\n").as_bytes())
    }

    /// The words after `qkv` that compute the same from what stands in them alone.
    fn command(&self, literals: &[(&'static str, String)]) -> Vec<String> {
        let mut words = vec!["explain".to_owned()];
        for (option, literal) in literals {
            words.push(format!("{option}={literal}"));
        }
        words.extend(self.drawn.iter().cloned());
        let mut command = Cli::command();
        // The words were understood before.
        if let Ok(matches) = command.try_get_matches_from_mut(env::args_os())
            && let (Some(explain), Some(matches)) = (
                command.find_subcommand("explain"),
                matches.subcommand_matches("explain"),
            )
        {
            let typed: Vec<_> = options(explain, matches).collect();
            let draws = |(name, _): &(String, _)| name == "--init" || name == "--dropout";
            // The seed of a drawn problem, whose numbers are written out now.
            let idle = |name: &str| name == "--seed" && !typed.iter().any(draws);
            let read = |option: &str| literals.iter().any(|(name, _)| *name == option);
            words.extend(
                typed
                    .iter()
                    .filter(|(name, _)| !read(name) && !idle(name))
                    .cloned()
                    .map(word),
            );
        }
        words
    }
}

/// The options that were typed and say what is computed, with their values.
fn options<'a>(
    command: &'a Command,
    matches: &'a ArgMatches,
) -> impl Iterator<Item = (String, Option<String>)> + 'a {
    let typed = |name: &str| {
        let known = matches.ids().any(|id| id.as_str() == name);
        known && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    command
        .get_arguments()
        .filter(move |arg| typed(arg.get_id().as_str()))
        .filter_map(|arg| Some((arg, arg.get_long()?)))
        .filter(|(_, long)| !LOOKS.contains(long))
        .map(|(arg, long)| {
            let values = matches.get_raw(arg.get_id().as_str()).map(|values| {
                let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
                (!values.is_empty()).then(|| values.join(","))
            });
            let takes = arg.get_action().takes_values();
            (format!("--{long}"), values.flatten().filter(|_| takes))
        })
}

fn word((name, value): (String, Option<String>)) -> String {
    match value {
        Some(value) => format!("{name}={value}"),
        None => name,
    }
}

/// `sheet.md` as `sheet.key.md`.
fn key_of(sheet: &Path) -> PathBuf {
    let mut name = sheet.file_stem().unwrap_or_default().to_owned();
    name.push(".key");
    if let Some(ending) = sheet.extension() {
        name.push(".");
        name.push(ending);
    }
    sheet.with_file_name(name)
}

fn for_programs(kind: Kind) -> Error {
    Error::Conflict {
        argument: "--exercise",
        other: format!("the format {}", kind.name()),
        remedy: "a sheet is for people: give it another ending, for example -o sheet.md",
    }
}

/// A drawn problem has its own arrays.
fn refuse_arrays(args: &ExplainArgs) -> Result<()> {
    let (inputs, layer, attention) = (&args.inputs, &args.layer, &args.attention);
    let given = [
        ("--q", &inputs.q),
        ("--k", &inputs.k),
        ("--v", &inputs.v),
        ("--past-k", &inputs.past_k),
        ("--past-v", &inputs.past_v),
        ("--x", &layer.x),
        ("--context", &layer.context),
        ("--wq", &layer.wq),
        ("--wk", &layer.wk),
        ("--wv", &layer.wv),
        ("--wo", &layer.wo),
        ("--bq", &layer.bq),
        ("--bk", &layer.bk),
        ("--bv", &layer.bv),
        ("--bo", &layer.bo),
        ("--q-norm", &layer.norms.q_norm),
        ("--k-norm", &layer.norms.k_norm),
        ("--keep", &attention.keep),
        ("--drop", &attention.drop),
        ("--bias", &attention.bias),
        ("--sinks", &attention.sinks),
        ("--grad-output", &args.gradient.grad_output),
    ];
    match given.iter().find(|(_, text)| text.is_some()) {
        None => Ok(()),
        Some((argument, _)) => Err(Error::Conflict {
            argument,
            other: "--exercise random".into(),
            remedy: "it draws its own arrays: leave out \"random\" to ask about yours",
        }),
    }
}

fn drawn_from(seed: u64, lang: Lang) -> String {
    match lang {
        Lang::En => format!("The numbers were drawn from seed {seed}."),
        Lang::Zh => format!("题中的数由种子{seed}抽取。"),
    }
}
