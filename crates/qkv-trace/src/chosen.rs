//! A part of a source.

use crate::facts::listed;
use crate::{Error, Facts, Kind, Place, Queries, Result, Source, Stage};
use std::ops::Range;

/// Which layers, heads and rows are looked at; all of them where none are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Layers.
    pub layers: Option<Vec<usize>>,
    /// Query heads.
    pub heads: Option<Vec<usize>>,
    /// Rows.
    pub rows: Option<Vec<usize>>,
}

impl Selection {
    /// The facts of what is selected.
    ///
    /// # Errors
    /// [`Error::NotThere`] for a layer, head or row that the source has not.
    pub fn facts(&self, facts: &Facts) -> Result<Facts> {
        let mut chosen = facts.clone();
        chosen.layers = choose("layer", &self.layers, &facts.layers)?;
        chosen.heads = choose("head", &self.heads, &facts.heads)?;
        let rows = self.row_numbers(facts)?;
        match &mut chosen.queries {
            Queries::OfKeys(of) => {
                *of = rows
                    .iter()
                    .filter_map(|row| of.get(*row).copied())
                    .collect()
            }
            Queries::Elsewhere(tokens) => {
                for text in tokens {
                    *text = rows
                        .iter()
                        .filter_map(|row| text.get(*row).cloned())
                        .collect();
                }
            }
        }
        Ok(chosen)
    }

    pub(crate) fn row_numbers(&self, facts: &Facts) -> Result<Vec<usize>> {
        let all: Vec<usize> = (0..facts.rows()).collect();
        choose("row", &self.rows, &all)
    }
}

fn choose(what: &'static str, asked: &Option<Vec<usize>>, all: &[usize]) -> Result<Vec<usize>> {
    let Some(asked) = asked else {
        return Ok(all.to_vec());
    };
    let mut chosen = asked.clone();
    chosen.sort_unstable();
    chosen.dedup();
    match chosen.iter().find(|number| !all.contains(number)) {
        None => Ok(chosen),
        Some(&asked) => Err(Error::NotThere {
            what,
            asked,
            available: listed(all),
        }),
    }
}

/// Some layers, heads and rows of a source, as a source that has nothing else. They keep their
/// numbers.
pub struct Chosen<'a> {
    source: &'a mut dyn Source,
    facts: Facts,
    /// The rows of the source that these are.
    rows: Vec<usize>,
}

impl<'a> Chosen<'a> {
    /// What is selected of a source.
    ///
    /// # Errors
    /// [`Error::NotThere`] for a layer, head or row that it has not.
    ///
    /// ```
    /// use qkv_trace::{Arrays, Chosen, Facts, Selection, Source, Token};
    /// let facts = Facts::of_weights(&[1, 1, 2, 2], vec![vec![Token::new("a"), Token::new("b")]])?;
    /// let mut all = Arrays::new(facts)?.with_weights(0, vec![1.0, 0.0, 0.5, 0.5])?;
    /// let selection = Selection { rows: Some(vec![1]), ..Selection::default() };
    /// let last = Chosen::new(&mut all, &selection)?;
    /// assert_eq!((last.facts().rows(), last.facts().own_key(0)), (1, Some(1)));
    /// # Ok::<(), qkv_trace::Error>(())
    /// ```
    pub fn new(source: &'a mut dyn Source, selection: &Selection) -> Result<Chosen<'a>> {
        let facts = selection.facts(source.facts())?;
        let rows = selection.row_numbers(source.facts())?;
        Ok(Chosen {
            source,
            facts,
            rows,
        })
    }
}

impl Chosen<'_> {
    /// Whether a stage is of the layers that these are.
    fn holds(&self, stage: Stage) -> bool {
        let (own, all) = (&self.facts.layers, &self.source.facts().layers);
        match stage {
            Stage::Into(layer) | Stage::OutOf(layer) => own.contains(&layer),
            Stage::Normed => own.last() == all.last(),
        }
    }

    /// Puts together runs of the source's rows.
    fn runs(
        &mut self,
        rows: Range<usize>,
        out: &mut Vec<f32>,
        give: impl Fn(&mut dyn Source, Range<usize>, &mut Vec<f32>) -> Result<()>,
    ) -> Result<()> {
        let mut part = Vec::new();
        out.clear();
        for run in self.rows[rows].chunk_by(|a, b| a + 1 == *b) {
            let range = run[0]..run[0] + run.len();
            give(self.source, range, &mut part)?;
            out.extend_from_slice(&part);
        }
        Ok(())
    }
}

impl Source for Chosen<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        self.facts.layers.contains(&layer) && self.source.has(kind, layer)
    }

    fn closing(&mut self, entry: usize) -> Result<Vec<(String, String)>> {
        self.source.closing(entry)
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.facts.check_rows(kind, place, &rows)?;
        if kind.is_of_keys() {
            return self.source.rows(kind, place, rows, out);
        }
        self.runs(rows, out, |source, range, part| {
            source.rows(kind, place, range, part)
        })
    }

    fn residual_width(&self, stage: Stage) -> Option<usize> {
        let width = self.source.residual_width(stage);
        width.filter(|_| self.holds(stage))
    }

    fn residual(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.runs(rows, out, |source, range, part| {
            source.residual(stage, entry, range, part)
        })
    }

    fn has_residual_norms(&self, stage: Stage) -> bool {
        self.holds(stage) && self.source.has_residual_norms(stage)
    }

    fn residual_norms(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.runs(rows, out, |source, range, part| {
            source.residual_norms(stage, entry, range, part)
        })
    }
}
