//! What a check found, as a LaTeX document.

use super::prose::plain;
use super::{COMMON, head};
use crate::Settings;
use crate::found::{Findings, Titles};
use std::fmt::Write;

impl Findings {
    /// As a LaTeX document that compiles in one run.
    pub fn latex(&self, settings: &Settings) -> String {
        let words = Titles::of(settings.lang);
        let mut body = format!(
            "\\begin{{center}}\\Large\\bfseries {}\\end{{center}}\n",
            plain(&self.headline)
        );
        let paragraphs = |body: &mut String, texts: &[String]| {
            for text in texts {
                let _ = write!(body, "{}\n\n", plain(text));
            }
        };
        let list = |body: &mut String, title: &str, items: Vec<String>| {
            if items.is_empty() {
                return;
            }
            if !title.is_empty() {
                let _ = writeln!(body, "\\section*{{{}}}", plain(title));
            }
            body.push_str("\\begin{itemize}\n");
            for item in items {
                let _ = writeln!(body, "\\item {item}");
            }
            body.push_str("\\end{itemize}\n");
        };
        let said = |entries: &[[String; 2]]| -> Vec<String> {
            let each = entries.iter();
            each.map(|[id, says]| format!("\\texttt{{{}}}: {}", plain(id), plain(says)))
                .collect()
        };
        paragraphs(&mut body, &self.facts);
        list(&mut body, words.causes, said(&self.causes));
        paragraphs(&mut body, &self.remarks);
        list(&mut body, words.lint, said(&self.lint));
        if let Some(table) = &self.table {
            // Rows of sentences break across lines and pages, which cells of a table do not.
            let row = |row: &Vec<String>| {
                let cells = row.iter().filter(|cell| !cell.is_empty());
                cells
                    .map(|cell| plain(cell))
                    .collect::<Vec<_>>()
                    .join(" --- ")
            };
            let columns = table.columns.iter().filter(|name| !name.is_empty());
            let columns: Vec<String> = columns.map(|name| plain(name)).collect();
            let _ = write!(body, "\\textbf{{{}}}\n\n", columns.join(" --- "));
            list(&mut body, "", table.rows.iter().map(row).collect());
        }
        let head = head(settings.lang, &body);
        format!("{head}{COMMON}\\begin{{document}}\n{body}\\end{{document}}\n")
    }
}
