//! Chinese: from the heads to the result, the checks and the warnings.

use super::{Chinese, of_group};
use crate::number::count;
use crate::words::Back;

impl Back for Chinese {
    fn heading_concatenated(&self) -> String {
        "多头拼接".into()
    }
    fn concatenated(&self, heads: usize, dv: usize) -> String {
        if heads == 1 {
            return "只有一个头，Z就是它的输出O；有多个头时，各头的输出会并排拼接。这一步不做任何计算。"
                .into();
        }
        let columns = match dv {
            1 => "第0列".into(),
            _ => format!("第0到{}列", dv.saturating_sub(1)),
        };
        format!(
            "把同一个词元在{heads}个头上的输出并排拼接：{columns}来自头0，接下来的来自头1{}。\
             这一步不做任何计算。",
            if heads > 2 { "，依此类推" } else { "" }
        )
    }
    fn heading_projected(&self) -> String {
        "输出投影".into()
    }
    fn output_projection(&self, in_width: usize, out_width: usize) -> String {
        format!("W_O ({in_width},{out_width})把各头的输出混合起来，变回每个词元{out_width}列。")
    }
    fn heading_residual(&self) -> String {
        "残差".into()
    }
    fn residual(&self, sinusoidal: bool) -> String {
        let which = if sinusoidal {
            "（已加上位置编码）"
        } else {
            ""
        };
        format!("再把词元本身加回来{which}，于是注意力只需要给出改变的部分。")
    }

    fn heading_checks(&self) -> String {
        "检查要点".into()
    }
    fn check_shapes(&self, queries: usize, keys: usize, dk: usize, dv: usize) -> String {
        format!(
            "（1）Q、K、V的来源和形状：Q ({queries},{dk})与K ({keys},{dk})列数相同；\
             K与V ({keys},{dv})行数相同。"
        )
    }
    fn check_scale(&self, usual: bool, dk: usize, factor: &str) -> String {
        if usual {
            format!("（2）得分：q·k除以√{dk}，只除一次（即乘以{factor}）。")
        } else {
            format!("（2）得分：q·k乘以缩放系数{factor}，只乘一次。")
        }
    }
    fn check_softmax(&self, masked: Option<bool>, sinks: bool) -> String {
        let mask = match masked {
            Some(true) => "先加掩码，再做softmax；",
            Some(false) => "没有屏蔽任何键；",
            None => "没有键；",
        };
        let sum = if sinks {
            "所以每行权重之和小于1，其余归sink："
        } else {
            "所以每行（而不是每列）权重之和为1："
        };
        format!("（3）softmax：{mask}对每个查询沿着键的方向计算，{sum}")
    }
    fn check_output(&self, dv: usize) -> String {
        format!("（4）输出：权重乘以值，沿着键相加；每个查询得到{dv}列，与V同宽。")
    }
    fn heading_warnings(&self) -> String {
        "需要注意".into()
    }
    fn warn_empty_row(&self, group: Option<&str>, i: usize, keys: usize) -> String {
        let why = match keys {
            0 => "没有任何键可看",
            _ => "没有保留任何键（全部屏蔽）",
        };
        format!(
            "{}第{i}行{why}：权重为0，输出为0，lse为−∞。",
            of_group(group)
        )
    }
    fn warn_more_rows(&self, more: usize) -> String {
        format!("另有{}行情况相同。", count(more))
    }
    fn warn_not_finite(&self, group: Option<&str>, i: usize, nan: bool, cause: &str) -> String {
        let what = if nan { "是NaN" } else { "不是有限数" };
        format!("{}第{i}行{what}，因为{cause}。", of_group(group))
    }
    fn cause_query(&self, i: usize, value: &str) -> String {
        format!("查询{i}含有{value}")
    }
    fn cause_key(&self, j: usize, value: &str) -> String {
        format!("它保留的键{j}含有{value}")
    }
    fn cause_value(&self, j: usize, value: &str) -> String {
        format!("它保留的键{j}对应的值含有{value}")
    }
    fn cause_scores(&self) -> String {
        "得分超出了数的表示范围".into()
    }
    fn warn_low_biases(&self, group: Option<&str>, i: usize, highest: &str) -> String {
        format!(
            "{}第{i}行保留的键，偏置都不大于{highest}。只有−∞才屏蔽键：有限的数再小，整行都有时\
             在softmax中也会约掉。若本意是屏蔽整行，请用−∞，或用--keep、--drop。",
            of_group(group)
        )
    }
    fn warn_half_precision(&self, score: &str) -> String {
        format!("|q·k|最大为{score}，超过半精度能表示的最大数65504：半精度的程序在这里会溢出。")
    }
}
