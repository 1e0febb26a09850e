//! A strict reader of HTML: what a browser would quietly repair is a fault here.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};

/// One element, with all the text inside it.
#[derive(Clone, Debug)]
pub struct Element {
    pub name: String,
    pub attributes: HashMap<String, String>,
    pub text: String,
    /// The element around it, by its place in the list.
    pub parent: Option<usize>,
}

impl Element {
    pub fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str)
    }
}

const VOID: [&str; 3] = ["meta", "br", "link"];
/// What may stand inside a paragraph or a heading.
const INLINE: [&str; 10] = [
    "b", "span", "small", "strong", "sub", "sup", "a", "button", "i", "summary",
];

/// Every element of a page in order of their beginnings.
pub fn elements(page: &str) -> Vec<Element> {
    let mut rest = page
        .strip_prefix("<!DOCTYPE html>")
        .unwrap_or_else(|| panic!("no doctype"));
    let mut all: Vec<Element> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    while let Some(at) = rest.find('<') {
        let text = decoded(&rest[..at]);
        for &outer in &open {
            all[outer].text.push_str(&text);
        }
        if let Some(comment) = rest[at..].strip_prefix("<!--") {
            let end = comment.find("-->").unwrap();
            assert!(!comment[..end].contains("--"), "{comment:.80}");
            rest = &comment[end + 3..];
            continue;
        }
        let end = at + rest[at..].find('>').unwrap_or_else(|| panic!("{rest:.80}"));
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop().unwrap_or_else(|| panic!("</{name}> alone"));
            assert_eq!(all[last].name, name, "closed in another order");
            continue;
        }
        let element = element(tag, open.last().copied());
        check_place(&all, &element);
        let raw = ["script", "style"].contains(&element.name.as_str());
        let void = VOID.contains(&element.name.as_str());
        let close = format!("</{}>", element.name);
        all.push(element);
        if raw {
            let end = rest.find(&close).unwrap_or_else(|| panic!("no {close}"));
            all.last_mut().unwrap().text = rest[..end].into();
            rest = &rest[end + close.len()..];
        } else if !void {
            open.push(all.len() - 1);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "not closed");
    all
}

fn element(tag: &str, parent: Option<usize>) -> Element {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    assert!(
        name.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        "<{tag}>"
    );
    let mut attributes = HashMap::new();
    while !rest.is_empty() {
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '-')
            .collect();
        assert!(!name.is_empty(), "<{tag}>");
        rest = &rest[name.len()..];
        let mut value = String::new();
        if let Some(quoted) = rest.strip_prefix("=\"") {
            let end = quoted.find('"').unwrap();
            value = decoded(&quoted[..end]);
            rest = &quoted[end + 1..];
        }
        assert!(!name.starts_with("on"), "a script in <{tag}>");
        assert!(attributes.insert(name, value).is_none(), "twice in <{tag}>");
        rest = rest.strip_prefix(' ').unwrap_or(rest);
    }
    Element {
        name: name.into(),
        attributes,
        text: String::new(),
        parent,
    }
}

/// Whether an element may stand where it stands.
fn check_place(all: &[Element], element: &Element) {
    let Some(parent) = element.parent else {
        assert_eq!(element.name, "html");
        return;
    };
    let (parent, name) = (all[parent].name.as_str(), element.name.as_str());
    let fits = match parent {
        "ul" | "ol" => name == "li",
        "table" => ["caption", "thead", "tbody"].contains(&name),
        "thead" | "tbody" => name == "tr",
        "tr" => ["td", "th"].contains(&name),
        "p" | "h1" | "h2" | "h3" | "span" | "b" | "small" | "td" | "th" => INLINE.contains(&name),
        _ => !["td", "th", "tr", "li", "caption"].contains(&name),
    };
    assert!(fits, "<{name}> in <{parent}>");
}

/// Text with its references resolved.
fn decoded(text: &str) -> String {
    assert!(!text.contains('>'), "{text}");
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let (name, after) = rest[at + 1..].split_once(';').unwrap();
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            _ => panic!("&{name};"),
        });
        rest = after;
    }
    out + rest
}

/// Unique names, references that lead somewhere, headings in order, nothing from outside.
pub fn check(page: &str) -> Vec<Element> {
    let all = elements(page);
    let mut ids = HashSet::new();
    for id in all.iter().filter_map(|element| element.get("id")) {
        assert!(ids.insert(id), "{id} twice");
    }
    let mut level = 0;
    for element in &all {
        for name in ["aria-labelledby", "href", "for"] {
            if let Some(target) = element.get(name) {
                assert!(ids.contains(target.trim_start_matches('#')), "{target}");
            }
        }
        for name in ["src", "srcset", "action", "style", "data"] {
            assert!(element.get(name).is_none(), "{element:?}");
        }
        if let Some(own) = element.name.strip_prefix('h').and_then(|n| n.parse().ok()) {
            assert!(own <= level + 1, "a heading of level {own} after {level}");
            assert!(!element.text.trim().is_empty());
            level = own;
        }
        if element.name == "button" || element.name == "a" {
            assert!(!element.text.trim().is_empty(), "{element:?}");
        }
    }
    let outside = [
        "http:", "https:", "//", "url(", "@import", "fetch(", "XMLHttp",
    ];
    for word in outside {
        assert!(!page.contains(word), "{word}");
    }
    all
}
