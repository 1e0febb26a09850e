//! An input that tells explanations apart, as text and as JSON.

use crate::Lang;
use crate::found::Findings;
use qkv_check::Apart;
use serde_json::{Value as Json, json};

/// What became of the search for an input that tells explanations apart.
#[derive(Clone, Debug)]
pub struct Separated {
    /// The file that holds it; none where none was found.
    pub file: Option<String>,
    /// The options that read it, in place of those that gave the inputs.
    pub arguments: String,
    /// Ids of explanations that it does not separate.
    pub together: Vec<Vec<String>>,
}

impl Separated {
    /// Where the input was written, with the options that read it, or none was found.
    pub fn new(found: Option<(&Apart, String, String)>) -> Separated {
        match found {
            Some((apart, file, arguments)) => Separated {
                file: Some(file),
                arguments,
                together: apart.together.clone(),
            },
            None => Separated {
                file: None,
                arguments: String::new(),
                together: Vec::new(),
            },
        }
    }

    /// Fills in `"tell_apart": FILE|null`, and adds `"tell_apart_options"` and
    /// `"tell_apart_together"`: how the file is read, and what it does not separate.
    pub fn put_into(&self, json: &mut Json) {
        json["tell_apart"] = json!(self.file);
        if self.file.is_some() {
            json["tell_apart_options"] = json!(self.arguments);
            json["tell_apart_together"] = json!(self.together);
        }
    }

    /// Says what to do with it.
    pub fn remark(&self, findings: &mut Findings, lang: Lang) {
        let Some(file) = &self.file else {
            findings.remarks.push(match lang {
                Lang::En => "No input was found that tells them apart.".into(),
                Lang::Zh => "没有找到能区分它们的输入。".into(),
            });
            return;
        };
        let arguments = &self.arguments;
        findings.remarks.push(match lang {
            Lang::En => format!(
                "{file} holds an input that tells them apart, and what each of them gives for it. \
                 Give it to the other side, and check what comes out with the same options, but \
                 {arguments}"
            ),
            Lang::Zh => format!(
                "{file}中有一组能区分它们的输入，以及每种解释对它给出的数。请让对方用它计算，再用同样的\
                 选项检查结果，只把输入换成{arguments}"
            ),
        });
        for group in &self.together {
            let ids = group.join(", ");
            findings.remarks.push(match lang {
                Lang::En => format!("It does not separate {ids}: no input was found that does."),
                Lang::Zh => format!("它无法区分{ids}：没有找到能区分的输入。"),
            });
        }
    }
}
