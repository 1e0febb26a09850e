//! Chinese: where queries and keys stand.

use super::Chinese;
use crate::words::{PlaceRule, Places, Stretch, shifted, signed};

impl Places for Chinese {
    fn alibi(&self, slope: &str) -> String {
        format!(
            "ALiBi：每个键减去“斜率×距离”，越近的键权重越大。头0的斜率是{slope}；\
             p_i是查询i在各键之间所处的位置。"
        )
    }
    fn positions(
        &self,
        group: Option<&str>,
        (rule, start): (&PlaceRule, i64),
        offset: Option<i64>,
        places: &[(usize, i64)],
    ) -> String {
        let group = group.map_or(String::new(), |group| format!("{group}中，"));
        let p = offset.map_or(String::new(), |offset| format!("p_i = {}", shifted(offset)));
        let first = match start {
            0 => String::new(),
            start => format!("（第一个键在位置{}）", signed(start)),
        };
        let rule = match rule {
            PlaceRule::End { queries, keys } => {
                let last = |n, what: &str| match n {
                    1 => format!("唯一的{what}"),
                    _ => format!("{n}个{what}中的最后一个"),
                };
                let (query, key) = (last(*queries, "查询"), last(*keys, "键"));
                format!("{query}与{key}位置相同{first}，所以{p}")
            }
            PlaceRule::Causal => format!("与因果掩码一致{first}，{p}"),
            PlaceRule::Document => {
                format!("每篇文档的最后一个查询与该文档的最后一个键位置相同{first}")
            }
        };
        let places: Vec<String> = places
            .iter()
            .map(|(i, p)| format!("p_{i} = {}", signed(*p)))
            .collect();
        format!("{group}{rule}：{}。", places.join("，"))
    }
    fn heading_rotary(&self) -> String {
        "旋转位置编码".into()
    }
    fn rotary(&self, interleaved: bool, turned: usize, width: usize) -> String {
        let pairs = if interleaved {
            "相邻两列配成一对"
        } else {
            "前一半的一列与后一半对应的一列配成一对"
        };
        let rest = if turned < width {
            format!("第{turned}到{}列保持不变。", width - 1)
        } else {
            String::new()
        };
        format!(
            "查询和键按各自的位置p旋转一个角度，使q·k取决于两个词元相距多远；{pairs}，\
             第n对按自己的频率f转动，参与旋转的列数d = {turned}。角度以弧度计。{rest}"
        )
    }
    fn frequency(&self, pair: usize, a: usize, b: usize) -> String {
        format!("第{pair}对（第{a}列和第{b}列）的f")
    }
    fn plain_frequency(&self, pair: usize) -> String {
        format!("第{pair}对缩放前的f")
    }
    fn turns(&self, pair: usize) -> String {
        format!("第{pair}对的圈数")
    }
    fn ramp(&self, pair: usize) -> String {
        format!("第{pair}对的过渡系数")
    }
    fn stretch(&self, stretch: &Stretch) -> String {
        match stretch {
            Stretch::Linear { factor } => {
                format!("频率缩放，用于比训练时更长的文本：每个f都除以{factor}。")
            }
            Stretch::Llama3 {
                factor,
                low,
                high,
                length,
            } => format!(
                "频率缩放，用于比最初训练的{length}个词元更长的文本：一对在这样长的文本中转\
                 {length}·f/(2π)圈，2π ≈ 6.2832。多于{high}圈的，f不变；少于{low}圈的，f除以{factor}；\
                 二者之间按过渡系数混合，它从{low}圈时的0增加到{high}圈时的1。"
            ),
        }
    }
    fn option_rotary(&self, interleaved: bool, base: &str, dim: Option<usize>) -> String {
        let pairs = if interleaved {
            "相邻两列配对（interleaved）"
        } else {
            "前后两半对应的列配对"
        };
        let dim = dim.map_or(String::new(), |dim| format!("，只旋转前{dim}列"));
        format!("旋转位置编码：{pairs}，底数{base}{dim}")
    }
    fn option_stretch(&self, stretch: &Stretch) -> String {
        match stretch {
            Stretch::Linear { factor } => format!("频率缩放：每个频率除以{factor}"),
            Stretch::Llama3 {
                factor,
                low,
                high,
                length,
            } => format!(
                "频率缩放（Llama 3的做法）：系数{factor}，低界{low}，高界{high}，原长度{length}"
            ),
        }
    }
    fn option_position_offset(&self, start: i64) -> String {
        format!("位置从{}数起", signed(start))
    }
}
