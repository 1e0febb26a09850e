//! What each position is trained to predict, and whether it can see it.

use super::beside::shown_rows;
use super::run::Run;
use crate::explanation::{Block, Part};

pub(super) fn part(run: &Run<'_>) -> Option<Part> {
    let next = run.subject.more.next_token.as_ref()?;
    let words = run.words;
    let formula = "label[i] = token[i + 1]";
    let mut part = run.part(&[], words.heading_next_token(), formula);
    part.blocks.push(Block::Paragraph(words.next_token()));
    for (b, labels) in next.labels.iter().enumerate() {
        if next.labels.len() > 1 {
            let heading = words.group(Some(b), None, None);
            part.blocks.push(Block::Heading(heading));
        }
        for i in shown_rows(run) {
            let label = labels.get(i).copied().flatten();
            let label = label.map(|j| match run.key_labels.get(j) {
                Some(token) => token.clone(),
                None => words.token(j),
            });
            let query = run.row_name('q', i);
            part.blocks
                .push(Block::Item(words.predicts(&query, label.as_deref())));
        }
    }
    push_leaks(run, &next.sees_own_label, &mut part);
    Some(part)
}

/// The rows that see what they are to predict, once if they are the same in every head.
fn push_leaks(run: &Run<'_>, leaks: &[[usize; 3]], part: &mut Part) {
    let words = run.words;
    let groups: Vec<[usize; 2]> = (0..run.batch)
        .flat_map(|b| (0..run.heads).map(move |h| [b, h]))
        .collect();
    let rows = |[b, h]: [usize; 2]| -> Vec<usize> {
        let own = leaks.iter().filter(|row| row[..2] == [b, h]);
        own.map(|row| row[2]).collect()
    };
    let names = |rows: &[usize]| -> Vec<String> {
        let named = rows.iter().map(|&i| run.row_name('q', i));
        named.collect()
    };
    if leaks.is_empty() {
        part.blocks.push(Block::Paragraph(words.sees_no_label()));
        return;
    }
    let first = groups.first().map_or(Vec::new(), |&group| rows(group));
    if groups.iter().all(|&group| rows(group) == first) {
        part.blocks
            .push(Block::Warning(words.sees_own_label(None, &names(&first))));
        return;
    }
    for group in groups {
        let rows = rows(group);
        if !rows.is_empty() {
            let name = run.group_name(group);
            let sentence = words.sees_own_label(name.as_deref(), &names(&rows));
            part.blocks.push(Block::Warning(sentence));
        }
    }
}
