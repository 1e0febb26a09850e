//! Chinese: common mistakes.

use super::Chinese;
use crate::words::{Contrasts, Factors, Same, ranges};
use qkv_check::{Mistake, WrongScale};

impl Contrasts for Chinese {
    fn heading_contrast(&self, mistake: Mistake) -> String {
        match mistake {
            Mistake::SoftmaxOverQueries => "对比：沿查询方向做softmax",
            Mistake::SoftmaxJoint => "对比：对整个矩阵做一次softmax",
            Mistake::Scale(WrongScale::Missing) => "对比：漏掉缩放",
            Mistake::Scale(WrongScale::ModelWidth(_)) => "对比：把√d_k误作√d_model",
            Mistake::MaskPolarity => "对比：掩码取反",
        }
        .into()
    }
    fn contrast_over_queries(&self) -> String {
        "错在哪里：softmax应当沿每一行（各个键）做，这里却沿每一列（各个查询）做。\
         为什么不对：每个查询要把总和为1的份额分给它看到的各个键；现在却是每个键把份额分给各个查询，\
         于是一个查询的权重会受其他查询影响，它的输出也不再是各个值的加权平均。\
         怎样识别：w的每一列之和为1，每一行之和却不是1。"
            .into()
    }
    fn contrast_joint(&self) -> String {
        "错在哪里：把整个矩阵当成一长行，对所有查询和键一起做了一次softmax。\
         为什么不对：本该每个查询各有总和为1的份额，现在所有查询合用一份，只要有别的查询，\
         一个查询的输出就会变小。怎样识别：全部权重加起来才等于1；一行之内各权重的比例仍然正确，\
         而该行的输出整体偏小，倍数相同。"
            .into()
    }
    fn contrast_scale(&self, kind: WrongScale, f: &Factors) -> String {
        let Factors {
            wrong,
            right,
            times,
            dk,
            ..
        } = f;
        let how = if f.sharper {
            "过于集中"
        } else {
            "过于平均"
        };
        let recognise = format!(
            "怎样识别：权重{how}；缩放后的得分处处是应有值的{times}倍，\
             如果后面没有softcap和偏置，ln(w[i,a]/w[i,b])也是应有值的{times}倍。"
        );
        match kind {
            WrongScale::Missing => format!(
                "错在哪里：q·k直接进入softmax，系数是{wrong}，而不是{right}。为什么不对：\
                 d_k = {dk}个乘积之和的波动大约是单个乘积的√{dk}倍，得分相差太大，\
                 softmax就几乎只选中一个键。{recognise}"
            ),
            WrongScale::ModelWidth(width) => {
                let which = if f.of_x {
                    format!("x的宽度{width}")
                } else {
                    format!("H·d_k = {}·{dk} = {width}", f.heads)
                };
                format!(
                    "错在哪里：根号下用了模型宽度（{which}），而不是一个头的宽度d_k = {dk}，\
                     系数成了{wrong}，而不是{right}。为什么不对：每个得分是d_k个乘积之和，\
                     要抵消的只是这d_k个乘积带来的波动。{recognise}"
                )
            }
        }
    }
    fn contrast_mask(&self) -> String {
        "错在哪里：把真和假弄反了，该屏蔽的键全被保留，该保留的键全被屏蔽。\
         为什么会错：有的库用真表示保留，有的库用真表示屏蔽，而掩码的形状完全一样。\
         怎样识别：权重恰好落在本应为0的地方；对因果掩码来说，每个查询只看得到后面的键，\
         最后一个查询一个键也看不到。"
            .into()
    }
    fn contrast_same(&self, same: &Same) -> String {
        let why = match same {
            Same::OneQuery => "只有一个查询，整个矩阵就是一行".into(),
            Same::OneColumn => "d_k = 1，正确的系数1/√1也是1".into(),
            Same::GivenFactor => "给定的缩放系数恰好就是这个值".into(),
            Same::ModelIsHead(width) => {
                format!(
                    "只有一个头，已知的宽度也只有它自己的：d_model = d_k = {width}。\
                     头多了以后d_model会更大，权重就会过于平均"
                )
            }
            Same::EqualScores => "每一行的得分都相等，乘以任何系数仍然相等".into(),
            Same::NoMask => "没有使用掩码，也就无从取反".into(),
            Same::ColumnsSumToOne => "w的每一列之和碰巧也是1，对称的例子就是这样。\
                 这样的数暴露不出这个错误，换一组查询就能看出来"
                .into(),
            Same::Chance => "这组数碰巧两种算法结果相同，换一组数就不同了".to_string(),
        };
        format!("在这里没有区别：{why}。")
    }
    fn contrast_entry(&self, label: &str, right: &str, wrong: &str) -> String {
        format!("相差最大的权重：{label}成了{wrong}，应为{right}。")
    }
    fn contrast_empty(&self, rows: &[usize]) -> String {
        format!(
            "查询{}没有任何键可看：权重全为0，输出为0。",
            ranges(rows, "、")
        )
    }
    fn right(&self, name: &str) -> String {
        format!("{name}（正确）")
    }
    fn wrong(&self, name: &str) -> String {
        format!("{name}（错误）")
    }
    fn difference(&self) -> String {
        "错误 − 正确".into()
    }
}
