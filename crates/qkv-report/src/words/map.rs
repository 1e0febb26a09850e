//! What is said beside pictures of heads.

use serde::Serialize;

/// Sentences around a map, for a terminal and for a page.
pub(crate) trait Maps {
    fn map_title(&self, model: &str) -> String;
    /// "30 layers × 9 heads · 12 tokens"
    fn map_sizes(&self, layers: usize, heads: usize, rows: usize, keys: usize) -> String;
    fn map_kv_heads(&self, kv_heads: usize) -> String;
    fn map_batch(&self, entry: usize, entries: usize) -> String;
    fn not_an_explanation(&self) -> &'static str;
    fn map_tokens(&self) -> &'static str;
    fn map_conventions(&self) -> &'static str;
    fn map_all_heads(&self) -> &'static str;
    /// `statistic` is one of [`PageWords`]' names.
    fn map_shades(&self, statistic: &str, largest: &str) -> String;
    fn map_first(&self, token: &str, share: &str, aside: bool) -> String;
    fn map_residual(&self) -> &'static str;
    fn map_residual_normed(&self) -> &'static str;
    fn map_residual_largest(&self, size: &str, stage: &str, token: &str) -> String;
    fn map_only_top(&self, top: usize) -> String;
    fn map_head(&self, layer: usize, head: usize, kv: Option<(usize, &[usize])>) -> String;
    fn map_one_head(&self) -> &'static str;
    fn map_averages(&self, entropy: &str, distance: Option<&str>, first: &str) -> String;
    fn map_links(&self, most: usize) -> String;
    fn map_no_key(&self) -> &'static str;
    fn map_more_heads(&self, more: usize) -> String;
    fn map_nan_rows(&self, head: &str, rows: usize) -> String;
    fn map_sums(&self, low: &str, high: &str) -> String;
    fn map_outside(&self, weights: usize) -> String;
    // Rankings
    fn by_title(&self, by: &str, texts: usize) -> String;
    fn by_says(&self, by: &str) -> String;
    fn by_pair(&self, from: &str, to: &str) -> String;
    fn by_columns(&self, target: &str, control: &str) -> [String; 4];
    fn by_control(&self, control: Option<&str>) -> String;
    fn by_best_control(&self, head: &str, value: &str) -> String;
    fn by_proves_little(&self) -> &'static str;
    fn by_all_zero(&self) -> &'static str;
    fn by_none(&self) -> &'static str;
    fn page_words(&self) -> &'static PageWords;
}

/// What a page's script says. `{l}`, `{h}` and the like are filled in by it.
#[derive(Serialize)]
pub(crate) struct PageWords {
    pub pattern: &'static str,
    pub entropy: &'static str,
    pub distance: &'static str,
    pub first: &'static str,
    pub previous: &'static str,
    pub own: &'static str,
    pub colour: &'static str,
    pub layer: &'static str,
    pub head: &'static str,
    pub kv: &'static str,
    pub one_head: &'static str,
    pub shared: &'static str,
    pub lines: &'static str,
    pub matrix: &'static str,
    pub queries: &'static str,
    pub keys: &'static str,
    pub keys_of_kv: &'static str,
    pub set_aside: &'static str,
    pub query: &'static str,
    pub weight: &'static str,
    pub pick_query: &'static str,
    pub pick_cell: &'static str,
    pub about: &'static str,
    pub shade: &'static str,
    pub merged: &'static str,
    pub rounded: &'static str,
    pub nothing: &'static str,
    pub not_a_number: &'static str,
    pub before: &'static str,
    pub after: &'static str,
    pub terms: &'static str,
    pub terms_say: &'static str,
    pub terms_missing: &'static str,
    pub terms_sum: &'static str,
    pub terms_scaled: &'static str,
    pub terms_weight: &'static str,
    pub terms_column: &'static str,
    pub terms_product: &'static str,
    pub terms_running: &'static str,
    pub grid_help: &'static str,
    pub no_script: &'static str,
    pub old_browser: &'static str,
}
