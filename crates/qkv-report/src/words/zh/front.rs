//! Chinese: the opening and the options in force.

use super::Chinese;
use crate::number::count;
use crate::words::{Front, Words, list, ranges};

impl Front for Chinese {
    fn title(&self) -> String {
        "注意力的笔算过程".into()
    }
    fn built_in(&self) -> String {
        "这是内置的例子：只有两个词元，用纸笔就能重算一遍。给出--q、--k、--v，或者--x和各权重矩阵，\
         就能用自己的数据计算。"
            .into()
    }
    fn novice(&self) -> String {
        "注意力让每个词元（token，即一个词或词的一部分）从其他词元那里取得信息。每个词元用一个查询（Q的一行）发问；\
         每个可供查看的词元各有一个键（K的一行）和一个值（V的一行）。查询与某个键越匹配，\
         该键对应的值在结果中占的份额就越大。一个查询分给各键的份额就是注意力权重，\
         结果是各个值的加权和："
            .into()
    }
    fn sizes(&self, queries: usize, keys: usize, dk: usize, dv: usize) -> String {
        format!(
            "本次计算的形状：Q ({queries},{dk})，K ({keys},{dk})，V ({keys},{dv})，输出\
             ({queries},{dv})。也就是{queries}个查询、{keys}个键，查询和键各有d_k = {dk}列，\
             值有d_v = {dv}列。所有编号都从0开始。"
        )
    }
    fn heads(&self, batch: usize, heads: usize, kv_heads: usize) -> String {
        let batch = match batch {
            1 => String::new(),
            _ => format!("{batch}个批次条目、"),
        };
        let shared = if heads == kv_heads {
            String::new()
        } else {
            format!("（键和值共{kv_heads}个头）")
        };
        format!(
            "以上是一个头的形状；本次共有{batch}{heads}个查询头{shared}。每个头用自己的数做同样的计算。"
        )
    }
    fn options_follow(&self) -> String {
        "生效的选项：".into()
    }
    fn how_numbers_are_shown(&self, digits: usize) -> String {
        format!(
            "数值说明：“=”之后的结果是精确值，“≈”之后的结果四舍五入到{digits}位小数，\
             后面的算式用到它时，写的也是舍入后的数。计算本身始终保留全部数位，只在显示时舍入。"
        )
    }
    fn large(&self, weights: usize, longest: usize, rows: &[usize], chosen: bool) -> String {
        let how = if chosen {
            "由--row指定"
        } else {
            "可用--row I另选"
        };
        format!(
            "输入较大（共{}个权重，点积最多{}项），因此每一步给出形状和公式，只写出一个头中\
             查询{}的数（{how}），较长的和式从中间省略。",
            count(weights),
            count(longest),
            ranges(rows, "、"),
        )
    }
    fn rows_chosen(&self, rows: &[usize]) -> String {
        format!(
            "按--row的要求，只写出查询{}的算式；矩阵仍列出全部行。",
            ranges(rows, "、")
        )
    }
    fn small_numbers(&self, digits: usize) -> String {
        format!(
            "这里有些数非常小，{digits}位小数只能显示其中很少几位，照着重算时末位常有出入：\
             用--digits 8可以显示更多位。"
        )
    }

    fn option_scale(&self, factor: &str) -> String {
        format!("缩放系数{factor}，代替1/√d_k")
    }
    fn option_past(&self, past: usize) -> String {
        format!("缓存中已有{past}个键和值")
    }
    fn option_sinusoidal(&self, start: usize) -> String {
        format!("正弦位置编码，位置从{start}数起")
    }
    fn option_norm(&self, q: bool, k: bool) -> String {
        let which = match (q, k) {
            (true, true) => "查询和键",
            (true, false) => "查询",
            _ => "键",
        };
        format!("对{which}做RMS归一化")
    }
    fn option_softcap(&self, cap: &str) -> String {
        format!("softcap（软上限）：C = {cap}")
    }
    fn option_bias(&self) -> String {
        "加性偏置".into()
    }
    fn option_alibi(&self, slopes: &str) -> String {
        format!("ALiBi，各头的斜率：{}", slopes.replace(", ", "、"))
    }
    fn option_mask(&self, true_keeps: bool) -> String {
        if true_keeps {
            "保留掩码（keep）：1表示保留该键，0表示屏蔽".into()
        } else {
            "屏蔽掩码（drop）：1表示屏蔽该键，0表示保留".into()
        }
    }
    fn option_causal(&self, alignment: &str) -> String {
        match alignment {
            "" => "因果掩码（查询与键一样多，各种对齐方式没有区别）".into(),
            "top-left" => "因果掩码，左上对齐（top-left）".into(),
            "bottom-right" => "因果掩码，右下对齐（bottom-right）".into(),
            offset => format!("因果掩码，偏移量{offset}"),
        }
    }
    fn option_window(&self, back: Option<usize>, forward: Option<usize>) -> String {
        self.window(back, forward)
    }
    fn option_lengths(&self, lengths: &[usize]) -> String {
        let each: Vec<String> = lengths
            .iter()
            .enumerate()
            .map(|(b, n)| format!("批次条目{b}有{n}个真实的键"))
            .collect();
        format!("长度：{}；其余是填充", each.join("，"))
    }
    fn option_documents(&self, queries: &[usize], keys: &[usize]) -> String {
        let keys = if queries == keys {
            String::new()
        } else {
            format!("，键数依次为{}", list(keys, "、"))
        };
        format!(
            "打包的多篇文档，查询数依次为{}{keys}：查询只看自己所在的文档",
            list(queries, "、")
        )
    }
    fn option_sinks(&self, sinks: &str) -> String {
        format!(
            "sink（只进分母的附加得分），各头依次为：{}",
            sinks.replace(", ", "、")
        )
    }
    fn option_dropout(&self, p: &str, seed: u64) -> String {
        format!("dropout（随机失活）：p = {p}，种子{seed}")
    }
    fn option_empty_rows_error(&self) -> String {
        "一行若没有任何键，按错误处理".into()
    }
}
