//! `qkv trace`: what the heads of a model did, in pictures and files.

mod given;
mod model;
mod target;
mod texts;
mod threads;
mod watch;

use crate::args::{Sink, TraceArgs, TraceFormat, trace_numbers as numbers};
use crate::arrays::Reader;
use crate::error::{Error, Result};
use crate::{interrupt, output};
use qkv_report::{MapView, Settings, map_html, map_json, map_svg, map_text};
use qkv_trace::{Chosen, HeadsBy, Place, Selection, Source, TraceFile};
use std::io;
use std::path::Path;
use target::Targets;
use watch::Watched;

/// Opens, looks, shows.
pub fn run(args: &TraceArgs) -> Result<()> {
    let targets = Targets::new(&args.output)?;
    output::check_places(
        targets
            .files()
            .map(|(argument, file)| (argument, Some(file))),
    )?;
    if targets.svg.is_some() && (args.part.layer.is_empty() || args.part.head.is_empty()) {
        return Err(Error::Missing {
            argument: "--layer and --head".into(),
            remedy: "a drawing shows one head: say which".into(),
        });
    }
    refuse_idle(args, &targets)?;
    if let Some(threads) = args.reading.threads {
        threads::limit(threads)?;
    }
    interrupt::watch();
    let mut stdin = io::stdin().lock();
    let mut reader = Reader::in_place(&mut stdin);
    let Opened { mut source, model } = open(args, &mut reader)?;
    targets.check_inputs(&reader, args.model.as_deref())?;
    let shown = show(args, &targets, source.as_mut(), model.as_ref());
    shown.map_err(|error| match interrupt::asked() {
        true => Error::Interrupted,
        false => error,
    })?;
    let closing = source.closing(args.part.entry);
    for (name, value) in closing.map_err(Error::trace("MODEL"))? {
        output::remark(&format!("{name}: {value}"));
    }
    Ok(())
}

/// Refuses options that mean nothing beside the others, before a model runs for long.
fn refuse_idle(args: &TraceArgs, targets: &Targets) -> Result<()> {
    let unranked = args.find.heads_by.is_empty();
    let alone = |argument, needed, remedy| {
        Err(Error::Alone {
            argument,
            needed,
            remedy,
        })
    };
    if args.part.keep.is_some() && targets.trace.is_none() {
        let remedy = "it says what a trace file keeps: name one, for example -o trace.safetensors";
        return alone("--keep", "-o", remedy);
    }
    if args.find.texts_file.is_some() && unranked {
        let remedy =
            "averages are taken over all texts: say of what, for example --heads-by previous";
        return alone("--texts", "--heads-by", remedy);
    }
    if args.find.control.is_some() && unranked {
        let remedy = "it is the control of a pair of words, for example --heads-by 'it>animal'";
        return alone("--control", "--heads-by", remedy);
    }
    if args.find.texts_file.is_some() && !args.part.rows.is_empty() {
        return Err(Error::Conflict {
            argument: "--rows",
            other: "--texts".into(),
            remedy: "rows are those of one text: leave one out",
        });
    }
    Ok(())
}

/// What is looked at.
struct Opened {
    source: Box<dyn Source>,
    /// The model that reads a file of texts, with these.
    model: Option<(model::Model, Vec<texts::Line>)>,
}

/// Whatever the arguments name.
fn open(args: &TraceArgs, reader: &mut Reader<'_>) -> Result<Opened> {
    let name = args.model.as_deref();
    let Some(name) = name.filter(|name| args.given.weights.is_none() && !is_trace(name)) else {
        let reading = &args.reading;
        let of_models = [
            ("--texts", args.find.texts_file.is_some()),
            ("--generate", reading.generate.is_some()),
            ("--pad", reading.pad.is_some()),
            ("--pixels", reading.pixels.is_some()),
            ("--threads", reading.threads.is_some()),
        ];
        if let Some((argument, _)) = of_models.into_iter().find(|(_, given)| *given) {
            return Err(Error::Alone {
                argument,
                needed: "a model",
                remedy: "it is for a model that runs: name one",
            });
        }
        let source = open_stored(args, reader)?;
        return Ok(Opened {
            source,
            model: None,
        });
    };
    if let Some(argument) = given::alone(&args.given) {
        return Err(Error::Alone {
            argument,
            needed: "--weights",
            remedy: "a model and a trace file say this themselves",
        });
    }
    if let Some(pixels) = &args.reading.pixels {
        return picture(args, name, pixels, reader);
    }
    let file = args
        .find
        .texts_file
        .as_deref()
        .map(texts::lines)
        .transpose()?;
    let first = file.iter().flatten().take(1);
    let shown: Vec<String> = match args.texts.is_empty() {
        true => first.map(|(_, text)| text.clone()).collect(),
        false => args.texts.clone(),
    };
    if shown.is_empty() {
        model::available(name)?;
        return Err(Error::Missing {
            argument: "TEXT".into(),
            remedy:
                "give the text that the model reads, in quotes, or --pixels to a model of pictures"
                    .into(),
        });
    }
    let model = model::load(name)?;
    // Of a file of texts without a TEXT, the first line is shown.
    let line = file.iter().flatten().map(|(line, _)| *line).next();
    let source = model::read(&model, args, &shown).map_err(|error| match line {
        Some(line) if args.texts.is_empty() => texts::at_line(error, line),
        _ => error,
    })?;
    Ok(Opened {
        source,
        model: file.map(|texts| (model, texts)),
    })
}

/// A model as it looks at a picture.
fn picture(args: &TraceArgs, name: &str, pixels: &str, reader: &mut Reader<'_>) -> Result<Opened> {
    let other = [
        ("TEXT", !args.texts.is_empty()),
        ("--texts", args.find.texts_file.is_some()),
        ("--generate", args.reading.generate.is_some()),
    ];
    if let Some((argument, _)) = other.into_iter().find(|(_, given)| *given) {
        return Err(Error::Conflict {
            argument,
            other: "--pixels".into(),
            remedy: "a model looks at a picture or reads a text: leave one out",
        });
    }
    let pixels = reader.array("--pixels", pixels)?;
    let numbers = pixels.to_f64().map_err(Error::io("--pixels"))?;
    let numbers: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
    let source = model::look(&model::load(name)?, args, &numbers, &pixels.shape)?;
    Ok(Opened {
        source,
        model: None,
    })
}

/// Weights from elsewhere, or a trace file.
fn open_stored(args: &TraceArgs, reader: &mut Reader<'_>) -> Result<Box<dyn Source>> {
    if let Some(weights) = &args.given.weights {
        if args.model.is_some() {
            return Err(Error::Conflict {
                argument: "--weights",
                other: "a model or a trace".into(),
                remedy: "give one of them",
            });
        }
        return given::open(&args.given, weights, reader);
    }
    let Some(model) = &args.model else {
        return Err(Error::Missing {
            argument: "MODEL".into(),
            remedy: "name a trace file or a model, or give --weights with --tokens".into(),
        });
    };
    if let Some(argument) = given::alone(&args.given) {
        return Err(Error::Alone {
            argument,
            needed: "--weights",
            remedy: "a model and a trace file say this themselves",
        });
    }
    let file = TraceFile::open(Path::new(model)).map_err(Error::trace("MODEL"))?;
    if !args.texts.is_empty() {
        return Err(Error::Conflict {
            argument: "TEXT",
            other: "a trace file".into(),
            remedy: "a trace has its text: leave it out, or name a model",
        });
    }
    Ok(Box::new(file))
}

/// Whether this is a file of arrays, there or not, rather than a model.
fn is_trace(name: &str) -> bool {
    let path = Path::new(name);
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    !path.is_dir() && ending.is_some_and(|ending| ending == "safetensors")
}

/// Everything that was asked for.
fn show(
    args: &TraceArgs,
    targets: &Targets,
    source: &mut dyn Source,
    model: Option<&(model::Model, Vec<texts::Line>)>,
) -> Result<()> {
    let part = &args.part;
    let selection = Selection {
        layers: numbers(&part.layer),
        heads: numbers(&part.head),
        rows: numbers(&part.rows),
    };
    let entries = source.facts().entries();
    if part.entry >= entries {
        return Err(Error::Value {
            argument: "--entry",
            value: part.entry.to_string(),
            remedy: format!("there are {entries}, counted from 0"),
        });
    }
    let mut source = Watched(source);
    let mut chosen = Chosen::new(&mut source, &selection).map_err(|error| {
        let argument = match &error {
            qkv_trace::Error::NotThere { what: "layer", .. } => "--layer",
            qkv_trace::Error::NotThere {
                what: "head" | "key and value head",
                ..
            } => "--head",
            qkv_trace::Error::NotThere { what: "row", .. } => "--rows",
            _ => "MODEL",
        };
        Error::trace(argument)(error)
    })?;
    let mut view = MapView {
        entry: part.entry,
        without_first: part.sink == Sink::Aside,
        few_heads: selection.layers.is_some() || selection.heads.is_some(),
        links: args.output.links,
        most_heads: args.find.most,
        ..MapView::default()
    };
    let drawn = match &targets.svg {
        Some(named) => Some((named, one_head(&chosen, part.entry)?)),
        None => None,
    };
    if let Some((argument, file)) = &targets.trace {
        let keep = part.keep.clone().unwrap_or_default();
        qkv_trace::write(file, &mut chosen, &keep).map_err(Error::trace(argument))?;
    }
    if !args.find.heads_by.is_empty() {
        let mut heads = HeadsBy::new(args.find.heads_by.clone(), args.find.control.clone());
        match model {
            Some((model, texts)) => texts::add(&mut heads, (model, texts), args, &selection)?,
            None => heads.add(&mut chosen).map_err(Error::trace("--heads-by"))?,
        }
        view.rankings = heads.rankings().map_err(Error::trace("--heads-by"))?;
        view.texts = heads.texts;
    }
    let settings = settings(args, targets);
    if let Some((argument, file)) = &targets.html {
        let page = map_html(&mut chosen, &view, &settings).map_err(Error::trace(argument))?;
        write(argument, file, page.as_bytes())?;
    }
    if let Some(((argument, file), place)) = drawn {
        let drawing =
            map_svg(&mut chosen, place, &view, &settings).map_err(Error::trace(argument))?;
        write(argument, file, drawing.as_bytes())?;
    }
    let text = match targets.printed(!view.rankings.is_empty()) {
        None => return Ok(()),
        Some(TraceFormat::Text) => {
            map_text(&mut chosen, &view, &settings).map_err(Error::trace("MODEL"))?
        }
        Some(TraceFormat::Json) => {
            let json = map_json(&mut chosen, &view).map_err(Error::trace("MODEL"))?;
            format!("{json}\n")
        }
    };
    match &targets.text {
        Some((argument, file)) => write(argument, file, text.as_bytes()),
        None => output::print(text.as_bytes()),
    }
}

/// The only head that is left.
fn one_head(source: &dyn Source, entry: usize) -> Result<Place> {
    let facts = source.facts();
    match (&facts.layers[..], &facts.heads[..]) {
        (&[layer], &[head]) => Ok(Place { entry, layer, head }),
        (layers, heads) => Err(Error::Value {
            argument: "--svg",
            value: format!("a drawing of {} heads", layers.len() * heads.len()),
            remedy: "it shows one: give one --layer and one --head".into(),
        }),
    }
}

fn settings(args: &TraceArgs, targets: &Targets) -> Settings {
    let look = &args.output;
    output::settings(
        &crate::args::OutputArgs {
            format: None,
            json: look.json,
            lang: look.lang,
            digits: look.digits,
            width: look.width,
            color: look.color,
            file: targets.text.as_ref().map(|(_, file)| file.clone()),
        },
        &[],
    )
}

fn write(argument: &'static str, file: &Path, bytes: &[u8]) -> Result<()> {
    if file == Path::new("-") {
        return output::print_with(|out| out.write_all(bytes));
    }
    qkv_io::write_file(file, bytes).map_err(Error::io(argument))
}
