//! Chinese: a second run.

use super::Chinese;
use crate::number::count;
use crate::words::{SecondRun, list};
use qkv_check::permute::Positional;

fn from_to(first: usize, end: usize) -> String {
    match end.saturating_sub(first) {
        0 => "0行".into(),
        1 => format!("第{first}行"),
        _ => format!("第{first}到{}行", end - 1),
    }
}

impl SecondRun for Chinese {
    fn heading_permuted(&self) -> String {
        "打乱词元的次序".into()
    }
    fn permuted(&self, order: &[usize]) -> String {
        format!(
            "把词元按{}的次序排列（第二次计算的词元i就是第一次的词元order[i]），全部重算一遍，\
             掩码和偏置随词元一起移动。O是第一次的输出，O'是第二次的输出。\
             如果注意力看不出次序，O'就应当是把O的各行照新次序排列。",
            list(order, "、")
        )
    }
    fn permuted_difference(&self) -> String {
        "差".into()
    }
    fn permuted_same(&self, rounded: bool, difference: &str) -> String {
        let how = if rounded {
            format!("（最大相差{difference}，只是求和次序不同带来的舍入误差）")
        } else {
            "（最大相差0）".into()
        };
        format!(
            "输出正是照新次序排列的那些行{how}。这里没有任何东西说明词元的位置：\
             一句话和打乱词序后的同一句话，逐词得到的输出完全一样。"
        )
    }
    fn permuted_other(&self, difference: &str) -> String {
        format!(
            "输出不再是原来的那些行：最大相差{difference}。这里有选项与词元的位置有关。\
             逐个单独试验："
        )
    }
    fn permuted_cause(
        &self,
        name: &str,
        option: Positional,
        ends: bool,
        difference: &str,
    ) -> String {
        if !ends {
            return format!(
                "只用{name}：最大相差{difference}。与它无关：对这些词元和这个次序，结果不变。"
            );
        }
        let why = match option {
            Positional::Sinusoidal => "词元换了位置，加上的正弦、余弦值也就变了",
            Positional::Rotary => "查询和键换了位置，旋转的角度也就变了",
            Positional::Alibi => "每个键要减去“斜率×距离”，而距离变了",
            Positional::Causal => "查询只看自己和之前的位置，不管那里站的是谁",
            Positional::Window => "查询只看自己附近的位置，不管那里站的是谁",
            Positional::Lengths => "最后几个位置算作填充，不管那里站的是谁",
            Positional::Documents => "有的词元挪进了另一篇文档",
            Positional::Dropout => "舍弃哪个权重取决于它所在的位置",
        };
        format!("只用{name}：最大相差{difference}。原因就在这里：{why}。")
    }
    fn permuted_without(&self, difference: &str, rounded: bool) -> String {
        let rounding = if rounded { "，只是舍入误差" } else { "" };
        format!("这些选项全都不用，最大相差{difference}{rounding}：计算的其余部分看不出次序。")
    }

    fn heading_decode(&self) -> String {
        "解码的一步：缓存省下了什么".into()
    }
    fn decode_reused(&self, past: usize) -> String {
        format!(
            "沿用：K和V的{}，取自缓存。它们只取决于各自的词元，后来的词元不会改变它们。",
            from_to(0, past)
        )
    }
    fn decode_new(&self, queries: usize, past: usize, keys: usize) -> String {
        format!(
            "新增：{queries}个查询行，以及K和V的{}。K和V的行数：{past} → {keys}。",
            from_to(past, keys)
        )
    }
    fn decode_saved(&self, queries: usize, keys: usize) -> String {
        format!(
            "工作量：每个头只算{queries}·{keys} = {}个得分；{keys}个查询全部重算则要\
             {keys}·{keys} = {}个。",
            count(queries * keys),
            count(keys * keys)
        )
    }
    fn decode_against_full_run(&self, tokens: usize) -> String {
        format!(
            "核对：不用缓存，在同样的选项下把全部{tokens}个词元一次算完，取其最后一行与这一步的\
             那一行比较（都取乘W_O、加残差之前的结果）。"
        )
    }
    fn decode_against_one_call(&self, queries: usize, keys: usize) -> String {
        format!(
            "核对：不用缓存，让同样的{queries}个查询一次面对缓存的和新的共{keys}个键。\
             这就是完整计算的最后{queries}行。其余各行无法给出：缓存只保留键和值，\
             不保留那些词元的查询（用--x加--decode从词元算起，就能看到完整计算）。"
        )
    }
    fn decode_step(&self) -> String {
        "这一步".into()
    }
    fn decode_other(&self, full: bool) -> String {
        if full { "完整计算" } else { "一次算完" }.into()
    }
    fn decode_equal(&self) -> String {
        "两者每一位都相同：缓存只省下计算，不改变任何数。".into()
    }
    fn decode_differs(&self, difference: &str) -> String {
        format!("最大相差{difference}。")
    }
}
