//! Sentences about tokens with names, and about training on the next one.

pub(crate) trait TokenWords {
    fn token(&self, index: usize) -> String;
    fn what_each_token_sees(&self) -> String;
    fn sees(&self, query: &str, tokens: &[&str]) -> String;
    fn heading_next_token(&self) -> String;
    fn next_token(&self) -> String;
    fn predicts(&self, query: &str, label: Option<&str>) -> String;
    fn sees_no_label(&self) -> String;
    fn sees_own_label(&self, group: Option<&str>, rows: &[String]) -> String;
}
