//! Chinese: how formulas and shapes are to be read.

use super::Chinese;
use crate::words::{Reading, Words};

impl Reading for Chinese {
    fn reading_follows(&self) -> String {
        "公式的读法：".into()
    }
    fn read_indices(&self) -> String {
        "q_i是Q的第i行，q[i,c]是这一行第c列的数；其他字母以此类推。".into()
    }
    fn read_transpose(&self) -> String {
        "ᵀ表示转置，即把行变成列：QKᵀ中是每个查询与每个键的乘积。".into()
    }
    fn read_root(&self, scale: Option<&str>) -> String {
        match scale {
            None => "√d_k是d_k的平方根，d_k是查询的列数。".into(),
            Some(scale) => {
                format!("/√d_k是通常的缩放，d_k是查询的列数；这里改为乘以{scale}。")
            }
        }
    }
    fn read_mask(&self, masked: bool) -> String {
        match masked {
            false => "mask是掩码，用来屏蔽查询不该看到的键；这里没有掩码，所以什么也不加。".into(),
            true => format!(
                "mask是掩码：查询不该看到的键加−∞，其他的键加0；见下文“{}”。",
                self.heading_masked()
            ),
        }
    }
    fn read_softmax(&self) -> String {
        format!(
            "softmax把每一行得分变成份额，也就是权重；见下文“{}”。",
            self.heading_softmax()
        )
    }
    fn read_sums(&self) -> String {
        "Σ_j表示对所有键j求和，Σ_c表示对所有列c求和；max_j表示在所有键j中取最大的。".into()
    }
    fn read_exp(&self) -> String {
        "exp(x)就是e的x次方，e ≈ 2.7183，所以exp(0) = 1；ln是exp的逆运算。".into()
    }
    fn read_tanh(&self) -> String {
        "tanh(x)在x很小时几乎等于x，并且总在−1到1之间。".into()
    }
    fn read_distance(&self) -> String {
        "|x|是x的绝对值。".into()
    }
    fn four_axes(&self, [batch, heads, queries, dk]: [usize; 4]) -> String {
        format!(
            "下文的形状写出全部的轴：批次、头、行、列。批次条目是一起计算的几段文本之一，\
             头是各用自己那几列的一次注意力，键值头是K和V的头。所以Q ({queries},{dk})的形状写成\
             [{batch},\u{a0}{heads},\u{a0}{queries},\u{a0}{dk}]。"
        )
    }
}
