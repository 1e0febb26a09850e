//! Chinese: what came out of a row.

use super::{Chinese, count, keys};
use crate::words::{Findings, Heaviest, Leaders, Mix};

/// "头0中，查询1" or "查询1".
fn query(group: Option<&str>, i: usize) -> String {
    group.map_or(format!("查询{i}"), |group| format!("{group}中，查询{i}"))
}

/// "同样", or nearly.
fn alike(best: &Leaders<'_>) -> &'static str {
    match best.equal {
        true => "同样",
        false => "几乎同样",
    }
}

impl Findings for Chinese {
    fn best_match(
        &self,
        group: Option<&str>,
        i: usize,
        best: &Leaders<'_>,
        next: Option<(usize, &str)>,
    ) -> String {
        let query = query(group, i);
        let number = best.number;
        match (best.keys, next) {
            (&[first], Some((second, next))) => format!(
                "{query}与键{first}最匹配，得分为{number}；其次是键{second}，得分为{next}。"
            ),
            (all, _) if all.len() == best.of => format!(
                "{query}与全部{}个键{}匹配，得分都是{number}。",
                all.len(),
                alike(best)
            ),
            (some, _) => format!(
                "{query}与{}并列最匹配，得分{}是{number}。",
                keys(some),
                if best.equal { "都" } else { "几乎都" }
            ),
        }
    }
    fn row_meaning(&self, i: usize, best: &Leaders<'_>, left: Option<&str>) -> String {
        let share = best.number;
        let sink = left.map_or(String::new(), |left| {
            format!("；{left}%归sink，不属于任何键")
        });
        let same = alike(best);
        match best.keys {
            [key] if best.of == 1 => match left {
                Some(_) => format!("查询{i}只看得到键{key}，分给它{share}%{sink}。"),
                None => format!("查询{i}只看得到键{key}，把{share}%全部分给它。"),
            },
            [key] if left.is_none() && share.starts_with("100") => {
                format!("查询{i}几乎把全部份额给了键{key}，其余的键所得微乎其微。")
            }
            [key] if left.is_some() => {
                format!("查询{i}把{share}%分给键{key}，份额最大{sink}。")
            }
            [key] if best.of == 2 => {
                format!("查询{i}把{share}%分给键{key}，其余分给另一个键。")
            }
            [key] => format!(
                "查询{i}把{share}%分给键{key}，份额最大；其余分散在另外{}个键上。",
                count(best.of - 1)
            ),
            all if all.len() == best.of => format!(
                "查询{i}给全部{}个键{same}多的份额，各{share}%{sink}。",
                count(all.len())
            ),
            some => format!(
                "查询{i}给{}{same}多的份额，各{share}%，并列最大{sink}。",
                keys(some)
            ),
        }
    }
    fn output_meaning(&self, i: usize, best: &Leaders<'_>, mix: &Mix) -> String {
        let share = best.number;
        match (best.keys, mix) {
            (_, Mix::Nothing) => format!("第{i}行没有剩下任何权重，所以输出为0。"),
            (_, Mix::One { key, weight: None }) => {
                format!("第{i}行把{share}%全放在键{key}上：输出只由值{key}构成。")
            }
            (_, Mix::One { key, weight }) => format!(
                "第{i}行只在键{key}上有权重（{share}%）：输出就是值{key}乘以{}。",
                weight.as_deref().unwrap_or("1")
            ),
            (_, Mix::Average) => format!(
                "第{i}行在{}个键上各放{share}%：输出就是这些值的平均。",
                count(best.of)
            ),
            (
                [key],
                Mix::Mostly {
                    nearest: true,
                    one_other,
                },
            ) => format!(
                "第{i}行把{share}%放在键{key}上，输出离值{key}比离{}更近。",
                if *one_other {
                    "另一个值"
                } else {
                    "其他值"
                }
            ),
            ([key], Mix::Mostly { .. }) => {
                format!("第{i}行把{share}%放在键{key}上，所以输出中值{key}所占份额最大。")
            }
            ([key], Mix::Blend) => format!(
                "第{i}行放在单个键上的份额至多为{share}%（键{key}），所以输出是几个值的混合。"
            ),
            (some, _) => format!(
                "第{i}行在{}上各放{share}%，份额最大，所以输出是几个值的混合。",
                keys(some)
            ),
        }
    }
    fn check_row(&self, group: Option<&str>, i: usize, total: &str, best: &Heaviest<'_>) -> String {
        let group = group.map_or(String::new(), |group| format!("{group}，"));
        let start = format!("    {group}第{i}行：和为{total}");
        match best {
            Heaviest::NoKey => format!("{start}，没有保留任何键"),
            Heaviest::NotFinite => start,
            Heaviest::At(Leaders {
                keys: all,
                number,
                of,
                ..
            }) if all.len() == *of && *of > 1 => {
                format!("{start}，权重都是{number}")
            }
            Heaviest::At(best) => {
                format!("{start}，最大权重{}在{}", best.number, keys(best.keys))
            }
        }
    }
}
