//! Where queries stand among the keys.

use super::run::Run;
use crate::explanation::{Block, Part};
use crate::words::PlaceRule;
use qkv::Causal;

/// Queries listed in a line.
const LISTED: usize = 8;

/// Adds where the queries stand, and why there; the first key stands at `start`.
pub(super) fn push(run: &Run<'_>, start: i64, part: &mut Part) {
    let attention = &run.subject.block.attention;
    let mut entries: Vec<usize> = run.groups.iter().map(|&[b, _]| b).collect();
    entries.dedup();
    if attention.lengths.is_none() {
        entries.truncate(1);
    }
    for b in entries {
        let length = attention.lengths.as_ref().map(|lengths| lengths.0[b]);
        let documents = attention.documents.is_some();
        let rule = match attention.causal {
            _ if documents => PlaceRule::Document,
            None | Some(Causal::BottomRight) => PlaceRule::End {
                queries: run.queries,
                keys: length.unwrap_or(run.keys),
            },
            Some(_) => PlaceRule::Causal,
        };
        let rows = run.rows.iter().take(LISTED);
        let places: Vec<(usize, i64)> = rows
            .map(|&i| (i, run.position(b, i).saturating_add(start)))
            .collect();
        let Some(&(i, place)) = places.first() else {
            continue;
        };
        let offset = (!documents).then(|| place.saturating_sub(i as i64));
        let group =
            (run.batch > 1 && length.is_some()).then(|| run.words.group(Some(b), None, None));
        let text = run
            .words
            .positions(group.as_deref(), (&rule, start), offset, &places);
        part.blocks.push(Block::Item(text));
    }
}
