//! `qkv run`: attention over files, on the fast path.

mod gradients;
pub mod progress;
mod slices;
mod summary;
mod target;
mod write;

use crate::args::RunArgs;
use crate::arrays::{Number, Reader, Stored, common_dtype};
use crate::error::{Error, Names, Result};
use crate::interrupt;
use crate::memory;
use crate::operands::{axes, past, stored};
use crate::options::{self, Norms, Options, Position};
use crate::output;
use crate::workers::{self, Workers};
use progress::Progress;
use qkv::{Attention, Block, DType, EmptyRows, Inputs, Tensor, View};
use qkv_io::half::{bf16, f16};
use slices::{Output, Rows, WORK};
use std::io;
use std::time::Instant;
use summary::Summary;
use target::Target;
use write::Results;

/// Reads, computes, writes.
pub fn run(args: &RunArgs) -> Result<()> {
    let target = Target::new(&args.output, args.gradient.backward)?;
    output::check_places([("-o", target.file.as_deref())])?;
    let drawn = args.attention.dropout.is_some();
    options::refuse_idle_seed(&args.attention, drawn, "--dropout")?;
    let threads = args.threads.unwrap_or_else(workers::cores);
    let workers = Workers::new(threads, &args.engine)?;
    workers.options.isa().map_err(Error::engine(Names::Given))?;
    let mut stdin = io::stdin().lock();
    let mut reader = Reader::in_place(&mut stdin);
    let (q_axes, k_axes) = axes(&args.inputs)?;
    let [q, k, v] = stored(&args.inputs, &mut reader, q_axes, k_axes)?;
    let past = past(&args.inputs, |name, text| reader.stored(name, text, k_axes))?;
    let grad = gradients::grad_output(&args.gradient, &mut reader, q_axes)?;
    let run = Run {
        args,
        target: &target,
        workers: &workers,
        arrays: Arrays {
            q,
            k,
            v,
            past,
            grad,
        },
        split: args.inputs.heads.is_some(),
    };
    let dtype = common_dtype(&run.arrays.all())?;
    target.check_dtype(dtype)?;
    match dtype {
        DType::F64 => run.compute::<f64>(dtype, reader),
        // Not rounded between norms or rotation and the products.
        DType::F16 if !run.is_turned() => run.compute::<f16>(dtype, reader),
        DType::Bf16 if !run.is_turned() => run.compute::<bf16>(dtype, reader),
        DType::F16 | DType::Bf16 | DType::F32 => run.compute::<f32>(dtype, reader),
    }
}

struct Run<'a> {
    args: &'a RunArgs,
    target: &'a Target,
    workers: &'a Workers,
    arrays: Arrays,
    /// Whether heads lie side by side in q.
    split: bool,
}

struct Arrays {
    q: Stored,
    k: Stored,
    v: Stored,
    past: Option<(Stored, Stored)>,
    /// The gradient of the output.
    grad: Option<Stored>,
}

impl Arrays {
    fn all(&self) -> Vec<&Stored> {
        let mut all = vec![&self.q, &self.k, &self.v];
        all.extend(self.past.iter().flat_map(|(k, v)| [k, v]));
        all.extend(&self.grad);
        all
    }
}

impl Run<'_> {
    /// Whether q and k are not what the products are made of.
    fn is_turned(&self) -> bool {
        let norms = &self.args.norms;
        self.args.position.position.is_some() || norms.q_norm.is_some() || norms.k_norm.is_some()
    }

    fn compute<T: Number>(&self, dtype: DType, mut reader: Reader<'_>) -> Result<()>
    where
        for<'c> qkv_io::Chunk<'c>: From<&'c [T]>,
    {
        let engine = Error::engine(Names::Given);
        let position = Position::new(&self.args.position, false)?;
        let Arrays { q, k, v, past, .. } = &self.arrays;
        let turned = self.is_turned();
        self.check_room::<T>(turned)?;
        let q_numbers = q.numbers::<T>(dtype)?;
        let k_numbers = k.numbers::<T>(dtype)?;
        let v_numbers = v.numbers::<T>(dtype)?;
        let past_numbers = past
            .as_ref()
            .map(|(k, v)| Ok::<_, Error>((k.numbers::<T>(dtype)?, v.numbers::<T>(dtype)?)))
            .transpose()?;
        let v_view = v.seen.view(v.argument, &v_numbers)?;
        let with_past = |q, k| -> Result<Inputs<'_, T>> {
            let inputs = Inputs::new(q, k, v_view).map_err(&engine)?;
            match past.as_ref().zip(past_numbers.as_ref()) {
                Some(((k, v), (k_numbers, v_numbers))) => inputs
                    .with_past(
                        k.seen.view(k.argument, k_numbers)?,
                        v.seen.view(v.argument, v_numbers)?,
                    )
                    .map_err(&engine),
                None => Ok(inputs),
            }
        };
        let inputs = with_past(
            q.seen.view(q.argument, &q_numbers)?,
            k.seen.view(k.argument, &k_numbers)?,
        )?;
        let options = Options::read(&self.args.attention, &mut reader, inputs.heads())?;
        let norms = Norms::read(&self.args.norms, &mut reader)?;
        if let Some(file) = &self.target.file {
            output::refuse_input("-o", &reader, file)?;
        }
        let block = Block {
            q_norm: norms.q,
            k_norm: norms.k,
            rotary: position.rotary,
            place: position.place,
            attention: options.attention()?,
            ..Block::default()
        };
        let attention = &block.attention;
        attention.check(&inputs).map_err(&engine)?;
        let backward = self.backward(attention, &inputs, dtype)?;
        let begin = Instant::now();
        let turned = if turned {
            let (q, k) = block.queries_and_keys(&inputs).map_err(&engine)?;
            Some((narrowed::<T>(&q)?, narrowed::<T>(&k)?))
        } else {
            None
        };
        let inputs = match &turned {
            Some((q, k)) => with_past(view(q)?, view(k)?)?,
            None => inputs,
        };
        interrupt::watch();
        let [batch, heads, queries, _] = inputs.scores_shape();
        let shape = [batch, heads, queries, inputs.value_dim()];
        let mut data = room("--q", shape, "the outputs")?;
        let rows = self.forward(attention, &inputs, &mut data)?;
        let gradients = match backward {
            Some(backward) => Some(backward.run(&inputs, &data, &rows)?),
            None => None,
        };
        let seconds = begin.elapsed().as_secs_f64();
        let check_unchanged = || {
            let arrays = self.arrays.all();
            let unchanged = arrays.iter().try_for_each(|array| array.check_unchanged());
            unchanged.and_then(|()| options.check_unchanged())
        };
        check_unchanged()?;
        let results = Results {
            run: self,
            dtype,
            attention,
            inputs: &inputs,
            output: &data,
            rows: &rows,
            gradients: gradients.as_ref(),
            bias_shape: options.bias_shape(),
            milliseconds: seconds * 1e3,
        };
        match self.target.encoding {
            Some(encoding) => results.write(encoding, check_unchanged),
            None => output::print(Summary::new(&results).text(&self.args.output).as_bytes()),
        }
    }

    /// The output, in the layout of q.
    fn forward<T: Number>(
        &self,
        attention: &Attention<'_>,
        inputs: &Inputs<'_, T>,
        data: &mut [T],
    ) -> Result<Rows> {
        let engine = Error::engine(Names::Given);
        let [batch, heads, queries, _] = inputs.scores_shape();
        let mut rows = Rows {
            lse: vec![f64::NEG_INFINITY; batch * heads * queries],
            empty: Vec::new(),
        };
        let mut output = Output {
            data,
            swapped: self.arrays.q.seen.swapped,
        };
        let slices = slices::plan(attention, inputs, WORK);
        let weights = slices.iter().map(|slice| slice.weight(attention, inputs));
        let progress = Progress::new(weights.sum(), "output", self.shows_progress(slices.len()));
        for slice in &slices {
            interrupt::check()?;
            slice
                .forward(attention, inputs, self.workers, &mut output, &mut rows)
                .map_err(&engine)?;
            progress.add(slice.weight(attention, inputs));
        }
        rows.empty.sort_unstable();
        match rows.empty.first() {
            Some(&first) if attention.empty_rows == EmptyRows::Error => {
                Err(engine(qkv::Error::EmptyRows {
                    rows: batch * heads * queries,
                    first,
                    empty: rows.empty,
                }))
            }
            _ => Ok(rows),
        }
    }

    /// Whether something of so many steps shows how far it is.
    fn shows_progress(&self, steps: usize) -> bool {
        steps > 1 && !self.args.output.quiet && !self.args.output.json
    }

    /// Refuses what there is no memory for, before any is taken.
    fn check_room<T: Number>(&self, turned: bool) -> Result<()> {
        let Arrays { q, k, v, .. } = &self.arrays;
        let count = |shape: &[usize]| {
            let sizes = shape.iter().map(|&size| size as u128);
            sizes.fold(1, u128::saturating_mul)
        };
        let element = size_of::<T>() as u128;
        let copies: u128 = self
            .arrays
            .all()
            .iter()
            .map(|array| array.copied_bytes::<T>())
            .sum();
        // Norms and rotation are computed in f64, from a copy.
        let made = match turned {
            true => (count(&q.shape) + count(&k.shape)).saturating_mul(16 + element),
            false => 0,
        };
        let [_, _, _, d_k] = q.seen.stored;
        let rows = count(&q.seen.stored) / (d_k as u128).max(1);
        let [_, _, _, d_v] = v.seen.stored;
        let result = rows.saturating_mul(8 + d_v as u128 * element);
        let bytes = copies
            .saturating_add(made)
            .saturating_add(result)
            .saturating_add(self.bytes_of_gradients::<T>());
        let what = format!(
            "the output and what is made of q, k and v of shapes {}, {} and {}",
            qkv_io::shown_shape(&q.shape),
            qkv_io::shown_shape(&k.shape),
            qkv_io::shown_shape(&v.shape)
        );
        memory::check_room("--q", what, bytes)
    }
}

/// Zeros for a result.
fn room<T: Number>(argument: &'static str, shape: [usize; 4], what: &str) -> Result<Vec<T>> {
    let count = shape.iter().product::<usize>();
    let mut data = Vec::new();
    if data.try_reserve_exact(count).is_err() {
        return Err(Error::Room {
            argument,
            what: format!("{what} of shape {shape:?}"),
            bytes: count as u128 * size_of::<T>() as u128,
            remedy: "compute fewer queries, heads or batch entries at a time",
        });
    }
    data.resize(count, T::from_f64(0.0));
    Ok(data)
}

/// Rounded to the format that is computed in.
fn narrowed<T: Number>(tensor: &Tensor<f64>) -> Result<Tensor<T>> {
    let numbers = tensor.data().iter().map(|&x| T::from_f64(x)).collect();
    Tensor::new(tensor.shape(), numbers).map_err(Error::about("--q"))
}

fn view<T: Number>(tensor: &Tensor<T>) -> Result<View<'_, T>> {
    View::new(tensor.data(), tensor.shape()).map_err(Error::about("--q"))
}
