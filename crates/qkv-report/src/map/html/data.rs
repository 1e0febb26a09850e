//! What a page holds as data.

use super::super::{MapView, head_name, query_name, sharing};
use super::pack::{
    Detail, EXACT, LEVELS, Packed, STRONGEST, THUMB, Weights, base64, coarsened, deflated, pack,
};
use crate::labels::label;
use crate::words::Words;
use qkv_trace::{Facts, HeadStatistics, Kind, Mean, Place, Source, Survey};
use serde_json::{Value, json};
use std::fmt::Write;
use std::io;

/// What weights, queries and keys may take of a page, in characters.
const MOST: usize = 23_000_000;

/// Why there is no page.
pub(super) enum Failed {
    Source(qkv_trace::Error),
    Packing(io::Error),
}

impl From<qkv_trace::Error> for Failed {
    fn from(error: qkv_trace::Error) -> Failed {
        Failed::Source(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Packing(error)
    }
}

/// The numbers of a page.
pub(super) struct Data {
    facts: Value,
    /// Each head's weights, by the head's place in the list.
    weights: Vec<Vec<u8>>,
    thumbs: Vec<u8>,
    /// Queries and keys by their names in the page.
    vectors: Vec<(String, Vec<u8>)>,
}

impl Data {
    pub(super) fn collect(
        source: &mut dyn Source,
        view: &MapView,
        survey: &Survey,
    ) -> Result<Data, Failed> {
        let facts = source.facts().clone();
        let keys = facts.keys();
        let sides = (facts.rows(), keys);
        let finest = Detail::finest(sides.0.max(sides.1));
        let largest = survey.heads.iter().map(|(_, head)| head.largest);
        let scale = largest.fold(1.0_f32, f32::max);
        let first = super::super::first_key(&facts, view.entry);
        let mut weights = Vec::new();
        let mut thumbs = Vec::new();
        for (place, _) in &survey.heads {
            let rows = super::super::weights(source, *place)?;
            let head = Weights {
                all: &rows,
                keys,
                scale,
                first,
                own: (0..sides.0).find(|row| facts.own_key(*row) == Some(first)),
            };
            let Packed { bytes, thumb } = pack(&head, finest)?;
            weights.push(bytes);
            thumbs.extend(thumb);
        }
        let detail = fit(&mut weights, sides, finest, MOST)?;
        let room = MOST.saturating_sub(characters(&weights));
        let vectors = vectors(source, view.entry, room)?;
        let object = json!({
            "layers": facts.layers,
            "heads": facts.heads,
            "kv": facts.heads.iter().map(|head| facts.kv_head(*head)).collect::<Vec<_>>(),
            "shared": facts.heads.iter().map(|head| sharing(&facts, *head).map(|found| found.1))
                .collect::<Vec<_>>(),
            "rows": facts.rows(),
            "columns": keys,
            "own": (0..facts.rows()).map(|row| facts.own_key(row)).collect::<Vec<_>>(),
            "first": first,
            "keys": tokens(&facts, view.entry),
            "queries": (0..facts.rows()).map(|row| query_name(&facts, view.entry, row))
                .collect::<Vec<_>>(),
            "aside": view.without_first,
            "merged": detail.merged,
            "levels": detail.levels,
            "error": detail.error(scale),
            "scale": scale,
            "exact": STRONGEST,
            "parts": EXACT,
            "thumb": THUMB,
            "thumb_levels": LEVELS,
            "factor": facts.scale,
            "width": facts.head_dim,
            "vectors": !vectors.is_empty(),
            "start": start(view, survey),
            "statistics": statistics(survey),
        });
        Ok(Data {
            facts: object,
            weights,
            thumbs: deflated(&thumbs)?,
            vectors,
        })
    }

    /// As elements of the page that its script reads.
    pub(super) fn write(&self, out: &mut String, words: &dyn Words) {
        let mut facts = self.facts.clone();
        facts["words"] = json!(words.page_words());
        // No token may end the element; JSON knows other ways to write a "<".
        let facts = facts.to_string().replace('<', "\\u003c");
        let _ = writeln!(
            out,
            "<script type=\"application/json\" id=\"facts\">{facts}</script>"
        );
        let thumbs = ("thumbs".to_owned(), &self.thumbs);
        let weights = self.weights.iter().enumerate();
        let weights = weights.map(|(at, bytes)| (format!("w{at}"), bytes));
        let vectors = self
            .vectors
            .iter()
            .map(|(name, bytes)| (name.clone(), bytes));
        for (name, bytes) in std::iter::once(thumbs).chain(weights).chain(vectors) {
            let _ = write!(out, "<script type=\"text/plain\" id=\"{name}\">");
            base64(bytes, out);
            out.push_str("</script>\n");
        }
    }
}

fn characters(parts: &[Vec<u8>]) -> usize {
    parts.iter().map(|part| part.len().div_ceil(3) * 4).sum()
}

/// Gives up detail until the weights take `most` characters or less.
fn fit(
    weights: &mut [Vec<u8>],
    sides: (usize, usize),
    finest: Detail,
    most: usize,
) -> io::Result<Detail> {
    if characters(weights) <= most {
        return Ok(finest);
    }
    // A sample tells well enough what all will take.
    const SAMPLE: usize = 16;
    let every = weights.len().div_ceil(SAMPLE).max(1);
    let mut chosen = finest;
    for detail in finest.coarser() {
        chosen = detail;
        let (mut before, mut after) = (0, 0);
        for packed in weights.iter().step_by(every) {
            before += packed.len();
            after += coarsened(packed, sides, finest, detail)?.len();
        }
        // A twentieth more, since it is a sample.
        let estimate = characters(weights) as f64 * after as f64 / before.max(1) as f64;
        if estimate * 1.05 <= most as f64 {
            break;
        }
    }
    for packed in weights.iter_mut() {
        *packed = coarsened(packed, sides, finest, chosen)?;
    }
    Ok(chosen)
}

/// Queries and keys as scores are made of them, of every head or, without room for that, of none.
fn vectors(
    source: &mut dyn Source,
    entry: usize,
    room: usize,
) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    let facts = source.facts().clone();
    let mut kinds = Vec::new();
    for &layer in &facts.layers {
        let pair = [Kind::RotatedQ, Kind::RotatedK];
        let pair = match pair.iter().all(|kind| source.has(*kind, layer)) {
            true => pair,
            false => [Kind::Q, Kind::K],
        };
        if pair.iter().all(|kind| source.has(*kind, layer)) {
            kinds.extend(pair.map(|kind| (layer, kind)));
        }
    }
    let characters: usize = kinds
        .iter()
        .map(|(_, kind)| {
            let [_, heads, rows, width] = facts.shape(*kind);
            (heads * rows * width * size_of::<f32>()).div_ceil(3) * 4
        })
        .sum();
    if characters > room {
        return Ok(Vec::new());
    }
    let mut vectors = Vec::new();
    let mut numbers = Vec::new();
    for (layer, kind) in kinds {
        for head in facts.heads_of(kind) {
            let place = Place { entry, layer, head };
            source.rows(kind, place, 0..facts.rows_of(kind), &mut numbers)?;
            let letter = if kind.is_of_keys() { 'k' } else { 'q' };
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            vectors.push((format!("{letter}{layer}-{head}"), bytes.collect()));
        }
    }
    Ok(vectors)
}

/// Names of the keys, without their numbers.
fn tokens(facts: &Facts, entry: usize) -> Vec<Value> {
    let tokens = facts.tokens.get(entry).map_or(&[][..], |tokens| tokens);
    tokens
        .iter()
        .map(|token| json!(label(&token.text)))
        .collect()
}

/// The head that the page opens with: the first of the first ranking.
fn start(view: &MapView, survey: &Survey) -> String {
    let ranked = view
        .rankings
        .first()
        .and_then(|ranking| ranking.heads.first());
    let first = survey.heads.first();
    match (ranked, first) {
        (Some(head), _) => head_name(head.layer, head.head),
        (None, Some((place, _))) => head_name(place.layer, place.head),
        (None, None) => String::new(),
    }
}

/// Averages of every head, to 4 digits.
fn statistics(survey: &Survey) -> Value {
    type Statistic = fn(&HeadStatistics) -> Mean;
    let all: [(&str, Statistic); 5] = [
        ("entropy", |head| head.entropy),
        ("distance", |head| head.distance),
        ("first", |head| head.first),
        ("previous", |head| head.previous),
        ("own", |head| head.own),
    ];
    let each = all.into_iter().map(|(name, statistic)| {
        let values = survey.heads.iter().map(|(_, head)| {
            let value = statistic(head).value().filter(|value| value.is_finite());
            value.map(|value| (value * 1e4).round() / 1e4)
        });
        (name.to_owned(), json!(values.collect::<Vec<_>>()))
    });
    Value::Object(each.collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Numbers that no compression helps.
    fn noise(count: usize) -> Vec<f32> {
        let mut state = 1_u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn detail_is_given_up_until_it_fits() {
        let (rows, keys) = (96, 64);
        let all = noise(rows * keys);
        let head = Weights {
            all: &all,
            keys,
            scale: 1.0,
            first: 0,
            own: None,
        };
        let finest = Detail::finest(rows);
        let packed: Vec<Vec<u8>> = vec![pack(&head, finest).unwrap().bytes; 20];
        let whole = characters(&packed);
        let mut last = finest;
        for percent in [100, 90, 75, 60, 40] {
            let mut weights = packed.clone();
            let most = whole * percent / 100;
            let detail = fit(&mut weights, (rows, keys), finest, most).unwrap();
            assert!(characters(&weights) <= most, "{percent} %");
            assert_eq!(detail == finest, percent == 100);
            assert!(detail.merged > last.merged || detail.levels <= last.levels);
            last = detail;
        }
    }
}
