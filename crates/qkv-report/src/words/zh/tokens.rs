//! Chinese: tokens.

use super::{Chinese, of_group};
use crate::words::TokenWords;

impl TokenWords for Chinese {
    fn token(&self, index: usize) -> String {
        format!("词元{index}")
    }
    fn what_each_token_sees(&self) -> String {
        "每个位置能看到哪些词元：".into()
    }
    fn sees(&self, query: &str, tokens: &[&str]) -> String {
        match tokens {
            [] => format!("{query}：什么也看不到"),
            _ => format!("{query}：{}", tokens.join(" · ")),
        }
    }
    fn heading_next_token(&self) -> String {
        "训练时每个位置要预测什么".into()
    }
    fn next_token(&self) -> String {
        "训练时，一个位置的标签就是下一个词元：把词元序列整体错开一位即可。\
         所有位置同时训练，所以任何位置都不能看到自己的标签，也就是紧跟在自己之后的那个键。"
            .into()
    }
    fn predicts(&self, query: &str, label: Option<&str>) -> String {
        match label {
            Some(label) => format!("{query} → {label}"),
            None => format!("{query} → ?（后面没有词元，没有标签，不计损失）"),
        }
    }
    fn sees_no_label(&self) -> String {
        "没有哪个位置能看到自己的标签。".into()
    }
    fn sees_own_label(&self, group: Option<&str>, rows: &[String]) -> String {
        format!(
            "{}这些位置能看到自己要预测的词元（查询i保留了键i + 1）：{}。这样训练只会学会照抄：\
             损失下降，却什么也没学到。用因果掩码可以挡住它。",
            of_group(group),
            rows.join("、"),
        )
    }
}
