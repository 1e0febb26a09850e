//! Weights in little room: a byte each or less, compressed, and each row's strongest in 16 bits.
//!
//! A weight w is the code round(√(w/scale)·levels), so that faint weights keep a shade. Where a text
//! is long, a cell holds the largest of several queries and keys. What the file may weigh decides
//! about levels and cells: the finest of [`Detail::coarser`] that fits.

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use qkv_trace::strongest;
use std::io::{self, Read, Write};

/// The code of a NaN.
const NAN: u8 = 255;
/// Codes at most, besides that of a NaN.
pub(super) const LEVELS: u8 = 254;
/// Cells of a side at most.
const MOST_CELLS: usize = 512;
/// Exact weights of a row.
pub(super) const STRONGEST: usize = 4;
/// An exact weight is a multiple of scale/65,000; 65,535 is NaN.
pub(super) const EXACT: f32 = 65_000.0;
/// Cells of a side of a head's picture in the overview.
pub(super) const THUMB: usize = 24;

/// How finely weights are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    /// Queries and keys that share a cell's side.
    pub merged: usize,
    /// Codes besides 0.
    pub levels: u8,
}

impl Detail {
    /// The finest for so many queries or keys.
    pub(super) fn finest(longest: usize) -> Detail {
        Detail {
            merged: longest.div_ceil(MOST_CELLS).max(1),
            levels: LEVELS,
        }
    }

    /// The others, finer ones first.
    pub(super) fn coarser(self) -> impl Iterator<Item = Detail> {
        let levels = [127, 63, 31].map(|levels| Detail { levels, ..self });
        let cells = [(2, 127), (2, 31), (4, 63), (8, 31), (16, 31)];
        let cells = cells.map(|(times, levels)| Detail {
            merged: self.merged * times,
            levels,
        });
        levels.into_iter().chain(cells)
    }

    /// How far a weight that is no exact one can be from what its code says, at most: half a step of
    /// √w, near w = scale.
    pub(super) fn error(self, scale: f32) -> f64 {
        f64::from(scale) / f64::from(self.levels)
    }

    fn sides(self, rows: usize, keys: usize) -> (usize, usize) {
        (rows.div_ceil(self.merged), keys.div_ceil(self.merged))
    }
}

/// A head, packed.
pub(super) struct Packed {
    /// Codes, those of the first key by row, and exact weights, deflated.
    pub bytes: Vec<u8>,
    /// Codes of its picture in the overview, and those of the first key by row of it.
    pub thumb: Vec<u8>,
}

/// A head's weights.
pub(super) struct Weights<'a> {
    /// `[rows][keys]`
    pub all: &'a [f32],
    pub keys: usize,
    /// The largest that any head has, but at least 1.
    pub scale: f32,
    /// The first key, which readers may set aside: its codes are apart from the others.
    pub first: usize,
    /// The row whose own key is the first; there it is not set aside.
    pub own: Option<usize>,
}

impl Weights<'_> {
    /// Codes of cells, then those of the first key.
    fn codes(&self, merged: usize, levels: u8, rows_of_first: usize) -> Vec<u8> {
        let rows = self.all.len() / self.keys.max(1);
        let wide = self.keys.div_ceil(merged);
        let mut cells = vec![0.0_f32; rows.div_ceil(merged) * wide];
        let mut first = vec![0.0_f32; rows.div_ceil(rows_of_first)];
        let mut others = Vec::with_capacity(self.keys);
        for (row, weights) in self.all.chunks(self.keys.max(1)).enumerate() {
            others.clear();
            others.extend_from_slice(weights);
            if self.own != Some(row) {
                let most = &mut first[row / rows_of_first];
                *most = larger(*most, others[self.first]);
                others[self.first] = 0.0;
            }
            let line = &mut cells[row / merged * wide..][..wide];
            for (cell, part) in line.iter_mut().zip(others.chunks(merged)) {
                *cell = part.iter().copied().fold(*cell, larger);
            }
        }
        let code = |weight: f32| code(weight, self.scale, levels);
        let mut codes: Vec<u8> = cells.into_iter().map(code).collect();
        codes.extend(first.into_iter().map(code));
        codes
    }
}

/// The larger one, NaN if one of them is.
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// Packs a head.
pub(super) fn pack(head: &Weights<'_>, detail: Detail) -> io::Result<Packed> {
    let (weights, keys, scale) = (head.all, head.keys, head.scale);
    let rows = weights.len() / keys.max(1);
    let mut bytes = head.codes(detail.merged, detail.levels, 1);
    let merged = rows.max(keys).div_ceil(THUMB).max(1);
    let thumb = head.codes(merged, LEVELS, merged);
    for row in weights.chunks(keys.max(1)) {
        let links = strongest(row, STRONGEST);
        for at in 0..STRONGEST {
            let (key, weight) = links.get(at).map_or((u16::MAX, 0), |link| {
                let exact = (link.weight.max(0.0) / scale * EXACT).round().min(EXACT);
                let exact = if link.weight.is_nan() {
                    u16::MAX
                } else {
                    exact as u16
                };
                // More keys than 16 bits count are not drawn.
                (u16::try_from(link.key).unwrap_or(u16::MAX), exact)
            });
            bytes.extend(key.to_le_bytes());
            bytes.extend(weight.to_le_bytes());
        }
    }
    Ok(Packed {
        bytes: deflated(&bytes)?,
        thumb,
    })
}

/// The same head with less detail.
pub(super) fn coarsened(
    packed: &[u8],
    (rows, keys): (usize, usize),
    from: Detail,
    to: Detail,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    DeflateDecoder::new(packed).read_to_end(&mut bytes)?;
    let (high, wide) = from.sides(rows, keys);
    let code = |code: u8| match code {
        NAN => NAN,
        code => {
            let share = f32::from(code) / f32::from(from.levels) * f32::from(to.levels);
            share.round() as u8
        }
    };
    let times = to.merged / from.merged;
    let (cells, rest) = bytes.split_at(high * wide);
    let (first, exact) = rest.split_at(rows);
    let mut coarse = largest((high, wide), to.sides(rows, keys), times, |row, key| {
        code(cells[row * wide + key])
    });
    coarse.extend(first.iter().map(|first| code(*first)));
    coarse.extend(exact);
    deflated(&coarse)
}

/// The largest of each `times` × `times` codes; NaN is the largest code.
fn largest(
    (rows, keys): (usize, usize),
    (high, wide): (usize, usize),
    times: usize,
    code: impl Fn(usize, usize) -> u8,
) -> Vec<u8> {
    let mut codes = vec![0; high * wide];
    for row in 0..rows {
        let line = &mut codes[row / times * wide..][..wide];
        for key in 0..keys {
            let cell = &mut line[key / times];
            *cell = (*cell).max(code(row, key));
        }
    }
    codes
}

fn code(weight: f32, scale: f32, levels: u8) -> u8 {
    if weight.is_nan() {
        return NAN;
    }
    let share = (weight.max(0.0) / scale).min(1.0).sqrt() * f32::from(levels);
    share.round() as u8
}

/// Without a header, as browsers call "deflate-raw".
pub(super) fn deflated(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Bytes as text, four characters for three (RFC 4648).
pub(super) fn base64(bytes: &[u8], out: &mut String) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let at = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for n in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n <= three.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn codes(packed: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn base64_of_any_length() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = String::new();
            base64(bytes.as_bytes(), &mut out);
            assert_eq!(out, text);
        }
        let mut out = String::new();
        base64(&[0xff, 0xef, 0xbe], &mut out);
        assert_eq!(out, "/+++");
    }

    #[test]
    fn a_code_is_within_what_is_said() {
        let detail = Detail::finest(4);
        assert_eq!(
            detail,
            Detail {
                merged: 1,
                levels: 254
            }
        );
        for levels in [254, 127, 31] {
            let detail = Detail { levels, ..detail };
            for n in 0..=1000 {
                let weight = n as f32 / 1000.0;
                let share = f32::from(code(weight, 1.0, levels)) / f32::from(levels);
                let apart = f64::from((share * share - weight).abs());
                // (c ± ½)² − c² ≤ c + ¼ steps², c ≤ levels: ½·2/levels and the square of half a step.
                let step = 1.0 / f64::from(levels);
                assert!(
                    apart <= detail.error(1.0) + step * step,
                    "{weight}: {apart}"
                );
            }
        }
        assert_eq!(code(f32::NAN, 1.0, 31), NAN);
        assert_eq!(
            (
                code(-1.0, 1.0, 254),
                code(2.0, 1.0, 254),
                code(2.0, 4.0, 254)
            ),
            (0, 254, 180)
        );
    }

    #[test]
    fn exact_weights_and_merged_cells() {
        // Rows of keys 0 and 1, of three keys; the first key is apart but in its own row.
        let weights = [0.25, 0.0, 0.75, f32::NAN, 1.0, 0.0];
        let head = Weights {
            all: &weights,
            keys: 3,
            scale: 1.0,
            first: 0,
            own: Some(0),
        };
        let detail = Detail::finest(3);
        let packed = pack(&head, detail).unwrap();
        let bytes = codes(&packed.bytes);
        assert_eq!(bytes[..6], [127, 0, 220, 0, 254, 0]);
        assert_eq!(bytes[6..8], [0, 255]);
        assert_eq!(packed.thumb, bytes[..8]);
        let exact = |row: usize, at: usize| {
            let at = 8 + (row * STRONGEST + at) * 4;
            (
                u16::from_le_bytes([bytes[at], bytes[at + 1]]),
                u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]),
            )
        };
        assert_eq!((exact(0, 0), exact(0, 1)), ((2, 48_750), (0, 16_250)));
        assert_eq!(exact(0, 2), (u16::MAX, 0));
        assert_eq!((exact(1, 0), exact(1, 1)), ((0, u16::MAX), (1, 65_000)));
        let to = Detail {
            merged: 2,
            levels: 127,
        };
        let coarse = codes(&coarsened(&packed.bytes, (2, 3), detail, to).unwrap());
        assert_eq!(coarse[..2], [127, 110]);
        assert_eq!(coarse[2..4], [0, 255]);
        assert_eq!(coarse[4..], bytes[8..]);
    }
}
