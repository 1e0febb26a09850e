//! The file of --tell-apart: an input for which explanations give different numbers.

use crate::args::{CheckArgs, Layout};
use crate::arrays::Reader;
use crate::error::{Error, Result};
use crate::output;
use qkv::{StepName, Tensor};
use qkv_check::{Apart, Report, Scene};
use qkv_io::{Encoded, Encoding, encode, shown, write_file_with};
use std::path::{Path, PathBuf};

/// What was asked for.
pub struct Wanted {
    file: PathBuf,
    encoding: Encoding,
    layout: Layout,
}

impl Wanted {
    /// From --tell-apart.
    pub fn new(args: &CheckArgs) -> Result<Option<Wanted>> {
        let Some(file) = &args.tell_apart else {
            return Ok(None);
        };
        let refuse = |value: String| Error::Value {
            argument: "--tell-apart",
            value,
            remedy: "name a file that ends in .safetensors or .npz: it holds several arrays".into(),
        };
        let ending = file.extension().map(|ending| ending.to_ascii_lowercase());
        let encoding = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("safetensors") => Encoding::Safetensors,
            Some("npz") => Encoding::Npz,
            _ => return Err(refuse(format!("\"{}\"", shown(&file.to_string_lossy())))),
        };
        Ok(Some(Wanted {
            file: file.clone(),
            encoding,
            layout: args.inputs.layout,
        }))
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Refuses to overwrite an input.
    pub fn check_inputs(&self, reader: &Reader<'_>) -> Result<()> {
        output::refuse_input("--tell-apart", reader, &self.file)
    }

    /// Writes the input, and what each explanation gives for it; says how it is read.
    pub fn write(&self, apart: &Apart, report: &Report) -> Result<(String, String)> {
        let file = self.file.to_string_lossy().into_owned();
        let (numbers, masks) = self.inputs(&apart.scene)?;
        let mut words = Vec::new();
        for name in numbers
            .iter()
            .map(|(name, _)| name)
            .chain(masks.iter().map(|(name, _)| name))
        {
            words.push(format!(
                "--{} {}",
                name.replace('_', "-"),
                argument(&self.file, name)
            ));
        }
        let attention = &apart.scene.block.attention;
        if let Some(qkv::KeyLengths(lengths)) = &attention.lengths {
            words.push(format!("--kv-lengths {}", listed(lengths.iter())));
        }
        if let Some(documents) = &attention.documents {
            let pairs = documents.queries().iter().zip(documents.keys());
            let each = pairs.map(|(q, k)| format!("{q}:{k}"));
            words.push(format!("--documents {}", listed(each)));
        }
        let results = results(apart, report);
        let arrays = numbers
            .iter()
            .chain(&results)
            .map(|(name, tensor)| Encoded::whole(name, tensor.shape(), tensor.data()));
        let masks = masks
            .iter()
            .map(|(name, mask)| Encoded::whole(name, mask.shape(), mask.data()));
        let arrays: Vec<Encoded<'_>> = arrays.chain(masks).collect();
        let notes = [
            ("made_by", concat!("qkv ", env!("CARGO_PKG_VERSION")).into()),
            ("options", words.join(" ").into()),
        ];
        write_file_with(&self.file, |out| encode(out, self.encoding, arrays, &notes))
            .map_err(Error::io("--tell-apart"))?;
        Ok((file, words.join(" ")))
    }

    /// The arrays of a scene by the names of their options.
    #[allow(clippy::type_complexity)] // two lists of names and arrays
    fn inputs(
        &self,
        scene: &Scene,
    ) -> Result<(Vec<(String, Tensor<f64>)>, Vec<(String, Tensor<bool>)>)> {
        let mut numbers = Vec::new();
        if let Some((_, x, context)) = &scene.tokens {
            numbers.push(("x".to_owned(), x.clone()));
            numbers.extend(context.iter().map(|c| ("context".to_owned(), c.clone())));
        }
        let given = scene
            .given
            .iter()
            .flat_map(|each| ["q", "k", "v"].into_iter().zip(each));
        let past = scene
            .past
            .iter()
            .flat_map(|(k, v)| [("past_k", k), ("past_v", v)]);
        for (name, tensor) in given.chain(past) {
            numbers.push((name.to_owned(), self.laid_out(tensor)?));
        }
        numbers.extend(
            scene
                .bias
                .iter()
                .map(|bias| ("bias".to_owned(), bias.clone())),
        );
        let masks = scene.masks.iter().map(|(mask, keeps)| {
            let name = if *keeps { "keep" } else { "drop" };
            (name.to_owned(), mask.clone())
        });
        Ok((numbers, masks.collect()))
    }

    /// Heads and tokens in the order of --layout.
    fn laid_out(&self, tensor: &Tensor<f64>) -> Result<Tensor<f64>> {
        let (&[b, h, l, d], Layout::Blhd) = (tensor.shape(), self.layout) else {
            return Ok(tensor.clone());
        };
        let rows = (0..b * l * h).map(|at| tensor.row(&[at / (l * h), at % h, at / h % l]));
        let data = rows.flatten().copied().collect();
        Tensor::new(&[b, l, h, d], data).map_err(Error::about("--tell-apart"))
    }
}

/// What is right, where the options say so, and what each explanation gives, by step and id.
fn results(apart: &Apart, report: &Report) -> Vec<(String, Tensor<f64>)> {
    let named = |step: StepName| match step {
        // Whatever a run ends with is --output.
        StepName::Concatenated | StepName::Projected | StepName::Residual => StepName::Output,
        step => step,
    };
    let mut results: Vec<(String, Tensor<f64>)> = Vec::new();
    for (step, tensor) in &apart.right {
        results.push((named(*step).to_string(), tensor.clone()));
    }
    for (at, (cause, steps)) in apart.each.iter().enumerate() {
        let id = cause.id();
        let twice = report.causes[..at].iter().any(|other| other.id() == id);
        for (step, tensor) in steps.iter().filter(|_| !twice) {
            results.push((format!("{}.{id}", named(*step)), tensor.clone()));
        }
    }
    results
}

fn argument(file: &Path, name: &str) -> String {
    let argument = format!("{}:{name}", file.to_string_lossy());
    let plain = |c: char| c.is_alphanumeric() || "/._:-+@%,".contains(c);
    match argument.chars().all(plain) {
        true => argument,
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

fn listed<T: ToString>(each: impl Iterator<Item = T>) -> String {
    each.map(|one| one.to_string())
        .collect::<Vec<_>>()
        .join(",")
}
