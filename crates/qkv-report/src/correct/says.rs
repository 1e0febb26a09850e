//! Slips in words.

use super::Marker;
use super::slip::Slip;
use crate::Lang;
use crate::number::shown;

/// What happened, with the row where there is one.
pub(super) fn slip(slip: &Slip, marker: &Marker<'_>, at: usize) -> String {
    let says = match marker.lang {
        Lang::En => english(slip, marker.digits),
        Lang::Zh => chinese(slip, marker.digits),
    };
    let entry = marker.entry(at);
    let row = entry.and_then(|entry| match entry.index.len() {
        4 => Some(entry.index[2]),
        3 => entry.index.last().copied(),
        _ => None,
    });
    match (row, marker.lang) {
        (Some(row), Lang::En) => format!("row {row}: {says}"),
        (Some(row), Lang::Zh) => format!("第{row}行：{says}"),
        (None, _) => says,
    }
}

fn english(slip: &Slip, digits: usize) -> String {
    let show = |number: f64| shown(number, digits).text;
    match slip {
        Slip::NotTheRoot { d, root } => {
            format!(
                "divided by d = {} instead of √d = {}",
                show(*d),
                show(*root)
            )
        }
        Slip::NotDivided { by } => format!("not divided by {}", show(*by)),
        Slip::Multiplied { by } => format!("multiplied by {} instead of divided", show(*by)),
        Slip::Inverted => "numerator and denominator exchanged".into(),
        Slip::MaxKept => "the row's maximum was not subtracted".into(),
        Slip::Reversed => "subtracted the wrong way round".into(),
        Slip::Added => "added instead of subtracted".into(),
        Slip::Sign => "the sign is wrong".into(),
        Slip::TermMissing { term } => format!("the term {} is missing from the sum", show(*term)),
        Slip::TermSign { term } => format!("the term {} has the wrong sign", show(*term)),
        Slip::Mean => "the plain mean of the values, not weighted".into(),
        Slip::OtherSum { row } => format!("divided by the sum of row {row}"),
        Slip::OtherPlace { label } => format!("this is the number of {label}"),
        Slip::Point => "the decimal point is in the wrong place".into(),
        Slip::Digits => "two digits are exchanged".into(),
        Slip::LastDigit => "cut off or rounded the wrong way: the last digit is off".into(),
    }
}

fn chinese(slip: &Slip, digits: usize) -> String {
    let show = |number: f64| shown(number, digits).text;
    match slip {
        Slip::NotTheRoot { d, root } => {
            format!("除以了d = {}，而应除以√d = {}", show(*d), show(*root))
        }
        Slip::NotDivided { by } => format!("没有除以{}", show(*by)),
        Slip::Multiplied { by } => format!("乘以了{}，而应相除", show(*by)),
        Slip::Inverted => "分子和分母颠倒了".into(),
        Slip::MaxKept => "没有减去该行的最大值".into(),
        Slip::Reversed => "减法的次序反了".into(),
        Slip::Added => "应相减却相加了".into(),
        Slip::Sign => "符号错了".into(),
        Slip::TermMissing { term } => format!("求和时漏了{}这一项", show(*term)),
        Slip::TermSign { term } => format!("{}这一项的符号错了", show(*term)),
        Slip::Mean => "只是值的平均，没有加权".into(),
        Slip::OtherSum { row } => format!("除以了第{row}行的和"),
        Slip::OtherPlace { label } => format!("这是{label}的数"),
        Slip::Point => "小数点位置错了".into(),
        Slip::Digits => "两个数字写反了".into(),
        Slip::LastDigit => "被截断或舍入有误：末位不对".into(),
    }
}
