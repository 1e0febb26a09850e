//! Chinese: exercises.

use super::Chinese;
use crate::words::{Sheet, list};

impl Sheet for Chinese {
    fn exercise_title(&self) -> String {
        "练习：笔算注意力".into()
    }
    fn key_title(&self) -> String {
        "练习答案：笔算注意力".into()
    }
    fn name_and_date(&self) -> String {
        "姓名：……………………………   日期：……………".into()
    }
    fn task(&self) -> String {
        "请按编号顺序填写每一个空，并写出计算过程。每个空只需要用到它前面的数和本节的公式。".into()
    }
    fn where_to_write(&self) -> String {
        "先写代入数的算式，再写结果，例如2·3 + 1·0 = 6。矩阵中(2)这样的编号表示该空的结果，\
         请抄到那里。"
            .into()
    }
    fn rounding(&self, digits: usize) -> String {
        let to = match digits {
            0 => "整数".into(),
            n => format!("{n}位小数"),
        };
        format!(
            "结果四舍五入到{to}；只要用到舍入过的数，就写“≈”而不写“=”。用舍入后的数继续算，末位\
             可能与保留全部数位的结果差几个单位，两者都算对。"
        )
    }
    fn notation(&self) -> String {
        "所有编号都从0开始：q0是第一个查询，s[0,1]是第0行第1列的数，Σ w[0,·]是第0行之和。".into()
    }
    fn rows_asked(&self, rows: &[usize]) -> String {
        format!("只需计算查询{}。", list(rows, "、"))
    }
    fn shape_asked(&self, steps: &[&str], axes: &str) -> String {
        format!("{}的形状〔{axes}〕", steps.join("和"))
    }
    fn exp_by_calculator(&self) -> String {
        "exp(x)就是e的x次方，e ≈ 2.7183，用计算器上的eˣ键计算。exp(0) = 1。".into()
    }
    fn exp_table(&self) -> String {
        "exp(x)就是e的x次方，e ≈ 2.7183。所需的值都在下表中：".into()
    }
    fn how_to_correct(&self, digits: usize) -> String {
        format!(
            "括号中的编号与题目一致。“=”之后的结果是精确值，“≈”之后的结果由保留全部数位的计算\
             四舍五入到{digits}位小数。用舍入后的数算出的结果也算对：末位可能不同；\
             多个舍入后的数相加，或乘以较大的数时，可能相差几个末位单位。"
        )
    }
    fn for_programs(&self) -> String {
        "下面一行是题目的数据，供批改程序读取，请保持原样：".into()
    }
}
