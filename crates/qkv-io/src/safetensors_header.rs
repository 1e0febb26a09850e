//! The header of a safetensors file: a JSON object that says of each tensor its type, its shape and
//! its bytes. Read here rather than by a library, so that a fault is said with its place in plain
//! words.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::json::{self, Fields};
use crate::shown::{shown_shape, shown_within};

/// What the header says of one tensor.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// First byte, and the byte after the last, from where the data starts.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The byte of the header that this was read at.
    pub(crate) at: usize,
}

/// What is wrong, at a byte of the header.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) found: String,
}

/// The tensors, and the notes of the file.
pub(crate) type Parsed = (Vec<Tensor>, HashMap<String, String>);

/// Reads the notes, and the tensors in the order of their bytes, which leave no gap and do not overlap.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|error| Fault {
        at: error.valid_up_to(),
        found: "bytes that are not UTF-8".into(),
    })?;
    let header = Header { text };
    let mut tensors = Vec::new();
    let mut notes = HashMap::new();
    for (name, value) in header.fields(text)? {
        if name == "__metadata__" {
            notes = serde_json::from_str(value.get()).map_err(|_| {
                let found = "__metadata__ holds something else than texts";
                header.fault(value.get(), found.into())
            })?;
            continue;
        }
        tensors.push(header.tensor(name, value)?);
    }
    tensors.sort_by_key(|tensor| (tensor.start, tensor.end));
    let mut end = 0;
    for tensor in &tensors {
        if tensor.start != end {
            let found = format!(
                "tensor {} has bytes from {} on where the one before ends at {end}",
                shown_within(&tensor.name, 60),
                tensor.start
            );
            return Err(Fault {
                at: tensor.at,
                found,
            });
        }
        end = tensor.end;
    }
    Ok((tensors, notes))
}

struct Header<'a> {
    text: &'a str,
}

impl<'a> Header<'a> {
    fn at(&self, part: &str) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    fn fault(&self, part: &str, found: String) -> Fault {
        Fault {
            at: self.at(part),
            found,
        }
    }

    /// The fields of an object, in order and none twice.
    fn fields(&self, object: &'a str) -> Result<Vec<(String, &'a RawValue)>, Fault> {
        let read: Result<Fields<'a>, _> = serde_json::from_str(object);
        let Fields(fields) = read.map_err(|error| {
            let before: usize = object
                .split_inclusive('\n')
                .take(error.line().saturating_sub(1))
                .map(str::len)
                .sum();
            Fault {
                at: self.at(object) + before + error.column().saturating_sub(1),
                found: format!("in the header, {}", json::in_words(&error)),
            }
        })?;
        Ok(fields)
    }

    fn tensor(&self, name: String, value: &'a RawValue) -> Result<Tensor, Fault> {
        let shown = shown_within(&name, 60);
        if !value.get().starts_with('{') {
            let found = format!("{shown} is no tensor, with dtype, shape and data_offsets");
            return Err(self.fault(value.get(), found));
        }
        let fields = self.fields(value.get())?;
        let field = |key: &str| {
            let found = fields.iter().find(|(name, _)| name == key);
            found
                .map(|(_, value)| value.get())
                .ok_or_else(|| self.fault(value.get(), format!("tensor {shown} has no {key}")))
        };
        let (dtype, shape, offsets) = (field("dtype")?, field("shape")?, field("data_offsets")?);
        let wrong = |part: &str, what: &str, says: &str| {
            let part_shown = shown_within(part, 40);
            let found = format!("the {what} of tensor {shown} {says}: {part_shown}");
            self.fault(part, found)
        };
        let dtype_read = serde_json::from_str::<String>(dtype)
            .map_err(|_| wrong(dtype, "dtype", "is no word"))?;
        let shape = self.whole_numbers(shape, |part| {
            wrong(
                part,
                "shape",
                "holds something else than whole numbers from 0",
            )
        })?;
        let offsets_read = self.whole_numbers(offsets, |part| {
            wrong(
                part,
                "data_offsets",
                "hold something else than whole numbers from 0",
            )
        })?;
        let &[start, end] = &offsets_read[..] else {
            return Err(wrong(offsets, "data_offsets", "are not two"));
        };
        if end < start {
            return Err(wrong(offsets, "data_offsets", "go backwards"));
        }
        if let Some(bits) = bits(&dtype_read) {
            let count = shape
                .iter()
                .try_fold(1_usize, |n, &size| n.checked_mul(size));
            let needed = count
                .and_then(|n| n.checked_mul(bits))
                .map(|n| n.div_ceil(8));
            if needed != Some(end - start) {
                let found = format!(
                    "tensor {shown} has {} bytes for shape {} of {}",
                    end - start,
                    shown_shape(&shape),
                    shown_within(&dtype_read, 40)
                );
                return Err(self.fault(offsets, found));
            }
        }
        Ok(Tensor {
            name,
            dtype: dtype_read,
            shape,
            start: start as u64,
            end: end as u64,
            at: self.at(value.get()),
        })
    }

    /// A list of whole numbers from 0.
    fn whole_numbers(
        &self,
        list: &'a str,
        wrong: impl Fn(&str) -> Fault,
    ) -> Result<Vec<usize>, Fault> {
        let items: Vec<&RawValue> = serde_json::from_str(list).map_err(|_| wrong(list))?;
        let one = |item: &&RawValue| item.get().parse().map_err(|_| wrong(item.get()));
        items.iter().map(one).collect()
    }
}

/// Whether the format has such a type.
pub(crate) fn is_known(dtype: &str) -> bool {
    bits(dtype).is_some()
}

/// Bits of one element, where the type is one that the format has.
fn bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}
