//! Chinese: the gradient.

use super::{Chinese, keys};
use crate::number::count;
use crate::words::backward::{Backward, KeyNumber};
use qkv::GradientName;

impl Backward for Chinese {
    fn gradient_axes(&self, name: GradientName) -> &'static str {
        match name {
            GradientName::GradWo
            | GradientName::GradWq
            | GradientName::GradWk
            | GradientName::GradWv => "输入列、输出列",
            GradientName::GradBo
            | GradientName::GradBq
            | GradientName::GradBk
            | GradientName::GradBv => "输出列",
            GradientName::GradSinks => "头",
            GradientName::GradQNorm | GradientName::GradKNorm => "d_k",
            _ => "批次、头、查询、键；偏置重复使用的轴为1",
        }
    }
    fn kv_group(&self, batch: Option<usize>, head: Option<usize>) -> String {
        match (batch, head) {
            (Some(b), Some(g)) => format!("批次条目{b}，键值头{g}"),
            (Some(b), None) => format!("批次条目{b}"),
            (None, Some(g)) => format!("键值头{g}"),
            (None, None) => String::new(),
        }
    }
    fn other_entries(&self, rows: usize, columns: usize) -> String {
        format!(
            "共{} × {}个元素，其余的算法相同。",
            count(rows),
            count(columns)
        )
    }
    fn other_numbers(&self, others: usize) -> String {
        format!("另有{}个数，算法相同。", count(others))
    }
    fn back_empty_row(&self, i: usize) -> String {
        format!("查询{i}没有保留任何键：它的输出恒为0，没有梯度经过。")
    }
    fn back_dropped_keys(&self, i: usize, numbers: &[usize]) -> String {
        format!(
            "对查询{i}来说，{}已被屏蔽：不论得分是多少，权重都是0，所以梯度为0。",
            keys(numbers)
        )
    }
    fn unused_key(&self, j: usize) -> String {
        format!("没有任何查询保留键{j}：它对结果没有影响，梯度为0。")
    }

    fn heading_gradient_start(&self) -> String {
        "梯度：从哪里开始".into()
    }
    fn what_a_gradient_is(&self) -> String {
        "训练时需要知道：某个数稍有变化，损失L会怎样变化。梯度回答的正是这个问题：\
         dx就是x每改变一个单位时L的改变量。梯度按链式法则从最后一步往前推，\
         每一步都由它后面一步的梯度得到，这就是反向传播。"
            .into()
    }
    fn gradient_start(&self, letter: char, given: bool) -> String {
        let capital = letter.to_ascii_uppercase();
        if given {
            format!(
                "结果的梯度d{capital}是给定的。它对应的损失L就是结果与这些数逐个相乘再相加，见下式。"
            )
        } else {
            format!("没有给出结果的梯度，所以d{capital}处处为1：损失L就是结果中所有数之和。")
        }
    }
    fn heading_back_residual(&self) -> String {
        "反向经过残差".into()
    }
    fn back_residual(&self, letter: char) -> String {
        let capital = letter.to_ascii_uppercase();
        format!(
            "残差是一个和，R = X + {capital}；和把自己的梯度原样传给每一项：\
             这里d{capital} = dR，最后dX还要再加上一份dR。"
        )
    }
    fn heading_back_projection(&self) -> String {
        "反向经过输出投影".into()
    }
    fn back_projection(&self) -> String {
        "在乘积Y = Z·W_O中，每个因子得到的都是“梯度乘以另一个因子”：dW_O = Zᵀ·dY，\
         由于所有词元用的是同一个权重矩阵，要对全部词元求和；dZ = dY·W_Oᵀ。"
            .into()
    }
    fn heading_back_heads(&self) -> String {
        "分回各头".into()
    }
    fn back_heads(&self, heads: usize, dv: usize) -> String {
        if heads == 1 {
            return "只有一个头，所以dO就是dZ，逐个相同。".into();
        }
        format!(
            "各列回到它们所来自的{heads}个头：dZ的第0到{}列是头0的dO，依此类推。这一步不做任何计算。",
            dv.saturating_sub(1)
        )
    }

    fn heading_grad_v(&self) -> String {
        "dV：值得到的梯度".into()
    }
    fn grad_v(&self, shared: bool) -> String {
        let shared = if shared {
            "共用同一个值头的各查询头，各自的贡献相加。"
        } else {
            ""
        };
        format!(
            "值j以权重w[i,j]进入查询i的输出，所以该输出的梯度也按同样的权重传回来，\
             再对各查询求和（沿权重矩阵的一列）：dV = Wᵀ·dO。{shared}"
        )
    }
    fn grad_v_meaning(&self, j: usize, query: (usize, Option<usize>), weight: &str) -> String {
        let (i, head) = query;
        let head = head.map_or(String::new(), |h| format!("头{h}的"));
        format!(
            "值{j}被{head}查询{i}用得最多，权重为{weight}：从那里传回来的就是do{i}乘以这个权重。"
        )
    }
    fn heading_grad_weights(&self) -> String {
        "dP：权重得到的梯度".into()
    }
    fn grad_weights(&self, dropout: bool) -> String {
        let dropout = if dropout {
            "dropout在权重之后：dP'是dropout之后的梯度；被置为0的权重梯度为0，\
             其余的与权重一样除以1 − p。"
        } else {
            ""
        };
        format!(
            "键j的权重乘的是值j，所以它的梯度是输出的梯度与这个值的点积：\
             权重每多一个单位，损失会增加多少。论文中常用P表示权重，因此记作dP。{dropout}"
        )
    }
    fn grad_weights_of_dropped_keys(&self) -> String {
        "被屏蔽的键，它的值不会读取，所以对应的元素为0。".into()
    }
    fn grad_weights_meaning(&self, i: usize, most: KeyNumber<'_>, least: KeyNumber<'_>) -> String {
        format!(
            "对查询{i}来说，键{}上的权重使损失增加得最多（每单位{}），键{}上的最少（{}）。",
            most.0, most.1, least.0, least.1
        )
    }
    fn heading_delta(&self) -> String {
        "δ：dP每一行的平均".into()
    }
    fn delta(&self, sinks: bool) -> String {
        let average = if sinks {
            "δ[i]是dP第i行按该行权重的加权和（sink那一份按0计）"
        } else {
            "δ[i]是dP第i行按该行权重的加权平均"
        };
        format!(
            "一行的权重总量是固定的，一个增大，其他的就要减小。{average}，也就是这一行里每单位权重平均能使损失增加多少。\
             它恰好等于do_i·o_i，即输出的梯度与输出的点积；高速程序就是这样得到它的，不必用到权重。"
        )
    }
    fn heading_grad_scores(&self, letter: char) -> String {
        format!("d{}：反向经过softmax", letter.to_ascii_uppercase())
    }
    fn grad_scores(&self, letter: char, sinks: bool) -> String {
        let row = if sinks {
            "有sink时一行之和不为0：余下的部分等于δ乘以sink的权重，它变号之后就是sink得到的梯度。"
        } else {
            "每一行之和为0，因为把一行的得分同时抬高，权重不会改变：Σ w·dp − δ·Σ w = δ − δ。"
        };
        let bias = if letter == 'c' {
            "（中间加上的偏置把梯度原样传过去。）"
        } else {
            ""
        };
        format!(
            "dp高于该行平均值δ的键，得分的梯度为正；低于平均的为负；\
             大小都与自己的权重成正比。{bias}{row}"
        )
    }
    fn grad_scores_meaning(
        &self,
        i: usize,
        delta: &str,
        up: KeyNumber<'_>,
        down: KeyNumber<'_>,
    ) -> String {
        format!(
            "第{i}行的平均值为δ = {delta}。键{}高于平均（dp = {}）：抬高它的得分会使损失增大。\
             键{}低于平均（dp = {}）：抬高它的得分会从dp更大的键那里分走权重，使损失减小。",
            up.0, up.1, down.0, down.1
        )
    }
    fn grad_scores_nothing(&self, i: usize, only_key: bool) -> String {
        if only_key {
            format!("查询{i}只保留一个键：不论得分是多少，权重都是1，所以得分的梯度为0。")
        } else {
            format!("对查询{i}来说，把权重从一个键移到另一个键不会改变损失，所以得分的梯度为0。")
        }
    }
    fn heading_grad_sinks(&self) -> String {
        "sink得到的梯度".into()
    }
    fn grad_sinks(&self) -> String {
        "sink像一个值为0的键那样参加softmax，所以它的dp为0，梯度为w_sink·(0 − δ)；\
         一个头只有一个sink，因此要对这个头的各行和各批次条目求和。"
            .into()
    }
    fn heading_grad_bias(&self) -> String {
        "偏置得到的梯度".into()
    }
    fn grad_bias(&self, repeated: bool) -> String {
        if repeated {
            "偏置加在得分上，所以得到的就是得分的梯度；一个数若用于多个头、查询或批次条目，\
             就得到它们的梯度之和。"
                .into()
        } else {
            "偏置加在得分上，所以逐个得到得分的梯度。".into()
        }
    }
    fn heading_back_softcap(&self) -> String {
        "dS：反向经过softcap".into()
    }
    fn back_softcap(&self, cap: &str) -> String {
        format!(
            "C·tanh(s/C)的斜率是1 − tanh²(s/C)，其中C = {cap}：得分小时接近1；\
             得分接近上限时接近0，几乎不再变动。"
        )
    }
    fn heading_back_scale(&self) -> String {
        "反向经过缩放".into()
    }
    fn back_scale(&self) -> String {
        "点积乘过缩放系数，所以它的梯度也要乘以这个系数，只乘一次。".into()
    }

    fn heading_grad_q(&self) -> String {
        "dQ：查询得到的梯度".into()
    }
    fn grad_q(&self, prepared: bool) -> String {
        let prepared = if prepared {
            "这里指进入得分计算时的查询。"
        } else {
            ""
        };
        format!(
            "在q·k中，每一方得到的都是“梯度乘以另一方”。一个查询要与每个键相乘，\
             所以dq_i是各个键乘以相应点积的梯度再相加：dQ = d(QKᵀ)·K。{prepared}"
        )
    }
    fn grad_q_meaning(&self, i: usize, to: KeyNumber<'_>, from: KeyNumber<'_>) -> String {
        format!(
            "查询{i}转向键{}（{}）、离开键{}（{}）时，损失增大。",
            to.0, to.1, from.0, from.1
        )
    }
    fn heading_grad_k(&self) -> String {
        "dK：键得到的梯度".into()
    }
    fn grad_k(&self, shared: bool, past: usize) -> String {
        let shared = if shared {
            "共用同一个键头的各查询头，各自的贡献相加。"
        } else {
            ""
        };
        let past = match past {
            0 => String::new(),
            1 => "键0来自缓存，它的梯度是对缓存中的数而言的。".into(),
            _ => format!(
                "键0到{}来自缓存，它们的梯度是对缓存中的数而言的。",
                past - 1
            ),
        };
        format!(
            "一个键要与每个查询相乘，所以dk_j是保留它的各个查询乘以相应点积的梯度再相加：\
             dK = d(QKᵀ)ᵀ·Q。{shared}{past}"
        )
    }
    fn heading_back_rotary(&self) -> String {
        "把旋转转回去".into()
    }
    fn back_rotary(&self, past: usize) -> String {
        let past = if past > 0 {
            "缓存中的键没有在这里转过，保持不变。"
        } else {
            ""
        };
        format!(
            "旋转不改变长度和夹角，它的梯度就是朝相反方向转同样的角度，即−θ。\
             没有转过的列保持不变。{past}"
        )
    }
    fn heading_back_norm(&self) -> String {
        "反向经过归一化".into()
    }
    fn back_norm(&self) -> String {
        "一个数x既是自己那个商的被除数，又影响除整行的均方根：dx的第一项是直接的影响，\
         第二项是经由均方根的影响，其中A和B由整行算出。增益得到的是梯度乘以归一化之后的数，对所有行求和。"
            .into()
    }
    fn heading_grad_layer(&self) -> String {
        "W_Q、W_K、W_V得到的梯度".into()
    }
    fn grad_layer(&self, past: usize) -> String {
        let past = if past > 0 {
            "缓存中的键和值不是在这里算出的，它们的梯度不计入。"
        } else {
            ""
        };
        format!(
            "权重的每个元素把每个词元的第r列乘进第c列，所以它得到的是词元的第r列乘以梯度的第c列，\
             对所有词元求和；这里各头又并排放在一起。{past}"
        )
    }
    fn heading_grad_tokens(&self, name: &str) -> String {
        format!("d{name}：词元得到的梯度")
    }
    fn grad_tokens(&self, name: &str, readers: usize, residual: bool, positions: bool) -> String {
        let readers = match readers {
            3 => "Q、K、V都由词元得到",
            2 => "K和V由上下文得到",
            _ => "Q由词元得到",
        };
        let residual = if residual {
            "，残差再原样加上dR"
        } else {
            ""
        };
        let positions = if positions {
            "加上的位置编码是固定的数，不影响梯度。"
        } else {
            ""
        };
        format!("{readers}，所以d{name}是经由各权重矩阵传回来的梯度之和{residual}。{positions}")
    }

    fn heading_difference(&self) -> String {
        "用有限差分检验".into()
    }
    fn finite_difference(&self, entry: &str, value: &str, step: &str, usual: bool) -> String {
        let step = if usual {
            format!("h = {step}")
        } else {
            format!("h = {step}（0.001不适合这里的数）")
        };
        format!(
            "导数说的是微小变化的后果，所以可以用一次微小的变化来检验。{entry} = {value}\
             的梯度在所属矩阵中最大；把{entry}分别增加和减少{step}，其他数都不变，整个计算重做两遍："
        )
    }
    fn difference_agrees(
        &self,
        digits: usize,
        quotient: &str,
        gradient: &str,
        rounding: bool,
    ) -> String {
        let why = if rounding {
            "余下的差别来自舍入：两个损失的16位数字大多相同，相减之后只剩最后几位。"
        } else {
            "余下的差别来自损失在两点之间的弯曲，它与h²成正比：h缩小到十分之一，\
             差别就缩小到百分之一，直到损失本身的舍入占上风。"
        };
        if digits == 0 {
            return format!(
                "差商{quotient}，梯度{gradient}：没有一位数字相同。损失在这里弯曲得太厉害，\
                 或者数的舍入太大，有限差分无法检验。"
            );
        }
        format!("差商{quotient}，梯度{gradient}：有{digits}位数字相同。{why}")
    }
    fn difference_of_nothing(&self, quotient: &str) -> String {
        format!("这里的梯度全为0，结果与这些数无关，差分也这么说：{quotient}。")
    }
    fn difference_not_finite(&self) -> String {
        "损失在这里不是有限数，无从比较。".into()
    }
}
