//! What clap found wrong with the words of the command line, in the form of all other messages.

use crate::error::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use qkv_io::shown;
use std::env;
use std::ffi::OsString;

/// The message. Requests for help and version are not errors and do not come here.
pub fn error(error: &clap::Error) -> Error {
    let words = Words(env::args_os().collect());
    Error::Usage(message(error, &words))
}

fn message(error: &clap::Error, words: &Words) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(list)) => Some(list.join(", ")),
        _ => None,
    };
    let invalid = text(ContextKind::InvalidArg);
    let option = invalid.as_deref().map(option_name);
    let value = text(ContextKind::InvalidValue).map(|value| shown(&value));
    match (error.kind(), option, value) {
        (ErrorKind::ValueValidation, Some(option), Some(value)) => {
            let remedy = std::error::Error::source(error)
                .map_or_else(|| "see --help".to_owned(), ToString::to_string);
            format!("{option}: \"{value}\" is not possible here; {remedy}")
        }
        (ErrorKind::InvalidValue, Some(option), Some(value)) => {
            let known = text(ContextKind::ValidValue).unwrap_or_default();
            match value.as_str() {
                "" if known.is_empty() => {
                    format!("{option}: a value is missing; give one after it")
                }
                "" => format!("{option}: a value is missing; give one of {known}"),
                _ => format!("{option}: \"{value}\" is not possible here; give one of {known}"),
            }
        }
        (ErrorKind::ArgumentConflict, Some(option), None) => {
            format!("{option}: given more than once; give it once")
        }
        (ErrorKind::UnknownArgument, Some(_), _) => {
            let word = invalid.unwrap_or_default();
            unknown(&word, text(ContextKind::SuggestedArg), words)
        }
        (ErrorKind::TooManyValues, Some(place), Some(value)) if !place.starts_with('-') => {
            format!("\"{value}\": nothing takes this; leave it out")
        }
        (ErrorKind::TooManyValues, Some(option), Some(value)) => {
            format!("{option}: takes no value; leave \"{value}\" out")
        }
        (ErrorKind::InvalidUtf8, _, _) => words.not_utf8(),
        (ErrorKind::MissingRequiredArgument, option, _) => {
            let option = option.unwrap_or("an argument");
            format!("{option}: missing; --help says what is possible")
        }
        (ErrorKind::InvalidSubcommand, _, _) => {
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let hint = match text(ContextKind::SuggestedSubcommand) {
                Some(similar) => format!("did you mean {similar}?"),
                None => "qkv --help lists the commands".into(),
            };
            format!("{}: there is no such command; {hint}", shown(&name))
        }
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.lines().next().unwrap_or_default();
            let says = first.strip_prefix("error: ").unwrap_or(first);
            format!("{says}; --help says what is possible")
        }
    }
}

/// The name of an option as it is best known: `--window <BACK,FORWARD>` is --window.
fn option_name(argument: &str) -> &str {
    match argument.split_whitespace().next().unwrap_or_default() {
        "--output" => "-o",
        name => name,
    }
}

/// A word that nothing takes.
fn unknown(word: &str, similar: Option<String>, words: &Words) -> String {
    if let Some((option, next)) = words.swallowed(word) {
        return format!("{option}: an array is missing before {next}");
    }
    let unsigned = word.strip_prefix('-').unwrap_or_default();
    if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return format!(
            "{}: a value that starts with a minus sign is joined to its option, such as \
             --alibi=-0.5",
            shown(word)
        );
    }
    if word.starts_with('-') {
        let hint = match similar {
            Some(similar) => format!("did you mean {similar}?"),
            None => "--help lists the options".into(),
        };
        return format!("{}: there is no such option; {hint}", shown(word));
    }
    match words.value_before(word) {
        Some((option, value)) => format!(
            "\"{}\": nothing takes this, since {option} takes one value and has \"{}\"; leave one \
             out, or put a value that holds blanks into quotation marks",
            shown(word),
            shown(&value)
        ),
        None => format!(
            "\"{}\": nothing takes this; {}",
            shown(word),
            match words.takes_arrays() {
                true => "arrays and values go after their option, such as --q",
                false => "--help says what is possible",
            }
        ),
    }
}

/// The words as they were typed.
struct Words(Vec<OsString>);

impl Words {
    /// Three words in a row, of which the last is this one and the first satisfies a condition.
    fn before(&self, last: &str, first: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        self.0
            .windows(3)
            .map(|words| (text(&words[0]), text(&words[1]), text(&words[2])))
            .find(|(option, _, word)| word == last && first(option))
            .map(|(option, middle, _)| (option, middle))
    }

    /// Whether the command is one of those with --q.
    fn takes_arrays(&self) -> bool {
        let command = self.0.get(1).and_then(|word| word.to_str());
        matches!(command, Some("explain" | "check" | "run"))
    }

    /// The option that took the next option for its value, and that one, where this is why `left`
    /// is left over: `--q --k 1` leaves 1.
    fn swallowed(&self, left: &str) -> Option<(String, String)> {
        self.before(left, is_option)
            .filter(|(_, next)| is_option(next))
    }

    /// The option in front of the word before this one, and that word, which is its value.
    fn value_before(&self, left: &str) -> Option<(String, String)> {
        self.before(left, is_option)
            .filter(|(_, value)| !value.starts_with('-'))
    }

    /// Which of them is not UTF-8.
    fn not_utf8(&self) -> String {
        let remedy = "give the file a name that is, or - and the file on standard input";
        let Some(at) = self.0.iter().position(|word| word.to_str().is_none()) else {
            return format!("an argument is not UTF-8; {remedy}");
        };
        let bytes = |word: &OsString| {
            let piece = |byte: u8| match byte {
                0x20..0x7f => char::from(byte).to_string(),
                _ => format!("<{byte:02X}>"),
            };
            let bytes = word.as_encoded_bytes().iter().copied();
            shown(&bytes.map(piece).collect::<String>())
        };
        let word = &self.0[at];
        let joined = word.to_string_lossy();
        let (option, value) = match joined.split_once('=') {
            Some((option, _)) if is_option(option) => {
                let value = bytes(word);
                let value = value
                    .split_once('=')
                    .map_or("", |(_, value)| value)
                    .to_owned();
                (option.to_owned(), value)
            }
            _ => {
                let before = at.checked_sub(1).and_then(|at| self.0[at].to_str());
                let option = before
                    .filter(|word| is_option(word))
                    .unwrap_or("an argument");
                (option.to_owned(), bytes(word))
            }
        };
        format!("{option}: \"{value}\" is not UTF-8; {remedy}")
    }
}

fn is_option(word: &str) -> bool {
    word.starts_with("--") && word.len() > 2
}
