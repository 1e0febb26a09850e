//! Chinese.

mod back;
mod backward;
mod contrast;
mod findings;
mod front;
mod map;
mod page;
mod places;
mod reading;
mod runs;
mod sheet;
mod tokens;

use super::{Projection, Reason, Words, ranges, shifted, signed};
use crate::number::count;
use qkv::StepName;

pub(super) struct Chinese;

fn keys(numbers: &[usize]) -> String {
    match numbers {
        [] => "没有任何键".into(),
        _ => format!("键{}", ranges(numbers, "、")),
    }
}

fn side(side: Option<usize>, direction: &str) -> String {
    match side {
        Some(n) => format!("{direction}{n}个键"),
        None => format!("{direction}不限"),
    }
}

fn of_group(group: Option<&str>) -> String {
    group.map_or(String::new(), |group| format!("{group}的"))
}

impl Words for Chinese {
    fn shape(&self, steps: &[&str], shape: &[usize], axes: &str) -> String {
        format!("{}的形状：{shape:?} = {axes}", steps.join("和"))
    }
    fn axes(&self, step: StepName) -> &'static str {
        match step {
            StepName::Q | StepName::QNormed | StepName::QRotated => "批次、头、查询、d_k",
            StepName::K | StepName::KNormed | StepName::KRotated => "批次、键值头、键、d_k",
            StepName::V => "批次、键值头、键、d_v",
            StepName::Max | StepName::Sum | StepName::Lse => "批次、头、查询",
            StepName::Output => "批次、头、查询、d_v",
            StepName::Concatenated => "批次、查询、头数·d_v",
            StepName::XPositioned
            | StepName::ContextPositioned
            | StepName::Projected
            | StepName::Residual => "批次、词元、宽度",
            _ => "批次、头、查询、键",
        }
    }
    fn group(&self, batch: Option<usize>, head: Option<usize>, kv_head: Option<usize>) -> String {
        let kv_head = kv_head.map_or(String::new(), |g| format!("（键值头{g}）"));
        match (batch, head) {
            (Some(b), Some(h)) => format!("批次条目{b}，头{h}{kv_head}"),
            (Some(b), None) => format!("批次条目{b}"),
            (None, Some(h)) => format!("头{h}{kv_head}"),
            (None, None) => String::new(),
        }
    }
    fn query(&self, i: usize) -> String {
        format!("查询{i}")
    }
    fn more_terms(&self, count: &str, value: &str) -> String {
        format!("[…其余{count}项…：{value}]")
    }
    fn other_keys(&self, count: &str, value: &str) -> String {
        format!("[其余{count}个键合计：{value}]")
    }
    fn other_columns(&self, width: usize) -> String {
        format!("其余各列（直到第{}列）算法相同。", width.saturating_sub(1))
    }
    fn other_heads(&self, others: usize) -> String {
        format!("另有{}个头未画出，算法相同。", count(others))
    }
    fn heaviest_keys(&self, written: usize, keys: usize) -> String {
        format!("共{}个键，只写出权重最大的{written}个。", count(keys))
    }
    fn matrix_left_out(&self, name: &str, rows: usize, columns: usize) -> String {
        let size = format!("{} × {}", count(rows), count(columns));
        match rows * columns {
            0 => format!("{name}是{size}的，没有数。"),
            _ => format!("{name}有{size}个数，不逐一列出。"),
        }
    }
    fn formula(&self, formula: &str) -> String {
        format!("公式：{formula}")
    }
    fn sentence(&self, words: &str) -> String {
        format!("{words}。")
    }

    fn heading_origin(&self) -> String {
        "Q、K、V从哪里来".into()
    }
    fn given(&self) -> String {
        "Q、K、V是直接给出的，还没有做任何乘法。（在模型中，它们由同一组词元X（每行一个词元）\
         乘以三个学到的矩阵得到：Q\u{a0}=\u{a0}X·W_Q，K\u{a0}=\u{a0}X·W_K，V\u{a0}=\u{a0}X·W_V。）Q的第i行是查询i，K的第j行是键j，\
         V的第j行是键j对应的值。"
            .into()
    }
    fn projected(&self, cross: bool, mark: &str) -> String {
        if cross {
            format!(
                "这是交叉注意力：查询由词元X{mark}得到，键和值由上下文C{mark}得到。每个元素都是一个点积，\
                 即输入的一行乘以权重矩阵的一列。"
            )
        } else {
            format!(
                "这是自注意力：查询、键、值都由同一组词元X{mark}（每行一个词元）分别乘以三个权重矩阵得到。\
                 每个元素都是一个点积，即X{mark}的一行乘以权重矩阵的一列。"
            )
        }
    }
    fn projection(&self, p: &Projection<'_>) -> String {
        let Projection {
            input,
            name,
            tokens,
            in_width,
            out_width,
            ..
        } = p;
        let bias = if p.bias {
            format!("每一行再加上偏置b_{name}。")
        } else {
            String::new()
        };
        format!(
            "{input}·W_{name}：({tokens},{in_width})·({in_width},{out_width}) → \
             ({tokens},{out_width})。{bias}"
        )
    }
    fn row_times_column(&self, input: &str, row: usize, weight: &str, column: usize) -> String {
        format!("{input}{row}·W_{weight}第{column}列")
    }
    fn split_columns(&self, name: &str, heads: usize, width: usize) -> String {
        let each: Vec<String> = (0..heads.min(16))
            .map(|h| {
                let first = h * width;
                match width {
                    1 => format!("头{h}取第{first}列"),
                    _ => format!("头{h}取第{first}到{}列", first + width - 1),
                }
            })
            .collect();
        let more = if heads > 16 { "，依此类推" } else { "" };
        format!("{name}的各列分给各头：{}{more}。", each.join("，"))
    }
    fn shared_heads(&self, each: usize, pairs: &[(usize, usize)]) -> String {
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(h, g)| format!("头{h}（键值头{g}）"))
            .collect();
        format!("每{each}个查询头共用一个键值头：{}。", pairs.join("、"))
    }
    fn cached(&self, queries: usize, past: usize, new: usize) -> String {
        format!(
            "K和V的前{past}行来自缓存，是以前各步算好的。这一步带来{queries}个新的查询行和{new}个新的键及其值，\
             所以K和V从{past}行增加到{}行。以前词元的查询不必再用：它们的输出早已算完。",
            past + new,
        )
    }
    fn heading_sinusoidal(&self) -> String {
        "给词元加上位置编码".into()
    }
    fn sinusoidal(&self, first: usize) -> String {
        format!(
            "注意力本身看不出先后次序，所以给每个词元加上一组由位置p决定的正弦和余弦值。\
             X的词元0位于p = {first}。角度以弧度计。"
        )
    }
    fn heading_norm(&self) -> String {
        "查询和键的归一化".into()
    }
    fn norm(&self) -> String {
        "每一行先除以自己的均方根，再逐列乘以增益（gain）。这样向量不论长短都同等对待，只留下方向。"
            .into()
    }
    fn mean_square(&self, name: &str) -> String {
        format!("mean({name}²)")
    }
    fn root_mean_square(&self, name: &str) -> String {
        format!("rms({name})")
    }

    fn heading_scores(&self) -> String {
        "得分：查询与键有多匹配".into()
    }
    fn scores(&self, prepared: bool, dk: usize) -> String {
        let prepared = if prepared {
            "（用上一步得到的查询和键）"
        } else {
            ""
        };
        let products = match dk {
            1 => "只有1个乘积".to_string(),
            _ => format!("由{dk}个乘积相加而成"),
        };
        format!(
            "一个查询与一个键的得分{prepared}是二者的点积，{products}：方向一致时大，\
             互相垂直时为0，方向相反时为负。"
        )
    }
    fn heading_scaled(&self) -> String {
        "缩放后的得分".into()
    }
    fn scaled_by_root(&self, dk: usize, root: &str, factor: &str) -> String {
        const WHY: &str = "许多乘积之和的波动比单个乘积大，例如64列时大约是√64 = 8倍；除以√d_k正好抵消。\
                           否则得分相差太大，softmax几乎总是只选中一个键。";
        if dk <= 1 {
            return format!(
                "每个得分除以√d_k = √{dk} = {root}：只有一列时没有变化。列数多时才有作用：{WHY}"
            );
        }
        let equal = if (dk as f64).sqrt().fract() == 0.0 {
            "="
        } else {
            "≈"
        };
        format!("每个得分除以√d_k = √{dk} {equal} {root}，也就是乘以{factor}。原因是：{WHY}")
    }
    fn scaled_by_factor(&self, factor: &str, dk: usize, usual: &str) -> String {
        format!("每个得分乘以给定的缩放系数{factor}；通常用的是1/√{dk}，即{usual}。")
    }
    fn heading_capped(&self) -> String {
        "softcap（软上限）".into()
    }
    fn capped(&self, cap: &str) -> String {
        format!("C = {cap}。小的得分几乎不变，任何得分都不会超出−{cap}到{cap}的范围。")
    }
    fn heading_biased(&self) -> String {
        "偏置".into()
    }
    fn bias(&self) -> String {
        "把偏置加到得分上。这只是普通的加法：只有−∞才会屏蔽一个键，再低的有限数也只是使它的权重更小。"
            .into()
    }
    fn heading_masked(&self) -> String {
        "掩码：每个查询能看到哪些键".into()
    }
    fn masked_formula(&self, letter: char) -> String {
        format!("键j保留时{letter}[i,j]不变，屏蔽时改为−∞")
    }
    fn masked(&self) -> String {
        "被屏蔽的键得分记为−∞，因为exp(−∞) = 0：它的权重恰好是0，对应的值也不会读取。\
         只有所有掩码都保留的键才保留。"
            .into()
    }
    fn causal(&self, alignment: &str, offset: Option<i64>) -> String {
        let name = match alignment {
            "" => "因果掩码",
            "top-left" => "因果掩码，左上对齐（top-left）",
            "bottom-right" => "因果掩码，右下对齐（bottom-right）",
            _ => "带偏移量的因果掩码",
        };
        match offset {
            Some(0) => format!("{name}：偏移量为0，查询i保留j ≤ i的键，即自己和之前的键。"),
            Some(offset) => format!(
                "{name}：偏移量为{}，查询i位于位置{}，保留j ≤ {}的键。",
                signed(offset),
                shifted(offset),
                shifted(offset),
            ),
            None => {
                format!("{name}：查询i保留不晚于自己位置的键，位置在各自的序列内计数。")
            }
        }
    }
    fn window(&self, back: Option<usize>, forward: Option<usize>) -> String {
        format!(
            "滑动窗口：查询能看到自己位置{}、{}",
            side(back, "之前"),
            side(forward, "之后")
        )
    }
    fn kept_and_dropped(
        &self,
        i: usize,
        position: Option<i64>,
        kept: &[usize],
        dropped: &[(Reason, Vec<usize>)],
    ) -> String {
        let position = position.map_or(String::new(), |p| format!("（位置{}）", signed(p)));
        let mut out = match kept {
            [] => format!("查询{i}{position}没有保留任何键"),
            _ => format!("查询{i}{position}保留{}", keys(kept)),
        };
        for (at, (reason, numbers)) in dropped.iter().enumerate() {
            let why = match reason {
                Reason::Document => "属于另一篇文档",
                Reason::Length => "超出长度，是填充",
                Reason::Causal => "因果掩码：在它之后",
                Reason::Window => "在窗口之外",
                Reason::Keep => "保留掩码为0",
                Reason::Drop => "屏蔽掩码为1",
                Reason::Bias => "偏置为−∞",
            };
            let link = if at == 0 { "；屏蔽" } else { "，以及" };
            out.push_str(&format!("{link}{}（{why}）", keys(numbers)));
        }
        out.push('。');
        out
    }

    fn heading_softmax(&self) -> String {
        "softmax：从得分到权重".into()
    }
    fn softmax(&self) -> String {
        "按行做softmax，即对每个查询沿着键的方向逐行计算。先减去该行的最大得分：\
         它在相除时会约掉，却能避免exp溢出。exp把每个数变成正数，再除以总和S，\
         每一行的权重之和就是1。"
            .into()
    }
    fn sinks(&self) -> String {
        "sink（只进分母的附加得分）给总和S多加一项，但没有对应的值：连同sink的份额，一行之和才是1，所以各键的权重之和小于1。"
            .into()
    }
    fn sink_term(&self) -> String {
        "sink".into()
    }
    fn empty_row(&self) -> String {
        "没有保留任何键：权重为0，输出为0，lse = −∞。".into()
    }
    fn no_share(&self, numbers: &[usize]) -> String {
        format!("{}被屏蔽：e = 0，权重为0。", keys(numbers))
    }
    fn heat_map(&self, group: Option<&str>) -> String {
        let group = group.map_or(String::new(), |group| format!("，{group}"));
        format!("权重热力图{group}：每行一个查询，每列一个键")
    }
    fn legend(&self, largest: &str) -> String {
        match largest {
            "0" => "空白 = 0：没有更大的权重".into(),
            _ => format!("█ = {largest}，即最大的权重；空白 = 0"),
        }
    }
    fn merged_cells(&self, rows: usize, columns: usize) -> String {
        format!("每格取至多{rows}个查询乘{columns}个键中最大的权重；█ = 本行最大，空白 = 0")
    }
    fn heading_dropout(&self) -> String {
        "dropout（随机失活）".into()
    }
    fn dropout(&self, p: &str, seed: u64, factor: &str) -> String {
        format!(
            "每个权重以概率{p}置为0（由种子{seed}决定）；留下的除以1 − {p}，即乘以{factor}，\
             使总和平均保持不变。"
        )
    }
    fn dropout_drawn(&self, i: usize, keys: &[usize]) -> String {
        match keys {
            [] => format!("查询{i}没有权重被抽中置0。"),
            _ => format!("查询{i}中，键{}的权重被抽中置0。", ranges(keys, "、")),
        }
    }
    fn dropout_sum(&self, i: usize, total: &str) -> String {
        format!("dropout之后，查询{i}的权重之和为{total}。")
    }
    fn heading_output(&self) -> String {
        "输出：对值加权求和".into()
    }
    fn output(&self, dv: usize, masked: bool) -> String {
        let dropped = if masked {
            "被屏蔽的键不参加求和。"
        } else {
            ""
        };
        format!(
            "输出的每一行由V的各行混合而成：每个值乘以自己的权重，再逐列相加（共{dv}列）。{dropped}"
        )
    }
    fn empty_output(&self, i: usize) -> String {
        format!("查询{i}没有保留任何键：输出为0。")
    }
    fn heading_lse(&self) -> String {
        "lse：总和的对数".into()
    }
    fn lse(&self, sinks: bool) -> String {
        let sinks = if sinks {
            "其中不含sink：只对各键求和。"
        } else {
            ""
        };
        format!(
            "lse是log-sum-exp的缩写，即一些exp之和的对数，这里是一行中所有得分的exp。\
             取exp之前减去了该行的最大得分m，相当于总和除以了exp(m)，所以取对数之后要把m加回来。\
             计算输出时用不到它；高速程序为每行保存这一个数，用来合并分块结果和计算梯度。\
             ln是自然对数。{sinks}"
        )
    }

    fn other_digits_first(&self, given: &[String], right: &[String]) -> String {
        format!(
            "〔按显示的数字计算得{}：计算保留了全部数位，只是显示时舍入，应以{}为准〕",
            given.join("、"),
            right.join("、")
        )
    }
    fn other_digits(&self, given: &[String]) -> String {
        format!("〔按显示的数字计算得{}〕", given.join("、"))
    }
    fn cancelled(&self) -> String {
        "〔在纸上为0：各项互相抵消，这只是计算机自身舍入的残余〕".into()
    }
    fn how_to_widen(&self, columns: usize) -> String {
        format!("（按宽度分栏显示；终端宽{columns}列时可以完整显示）")
    }
    fn warning(&self) -> &'static str {
        "！"
    }
}
