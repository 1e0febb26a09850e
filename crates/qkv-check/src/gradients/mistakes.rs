//! The table of mistakes of the backward pass.

use super::GradientMistake;
use super::backward::{Groups, Masked, Mistake};
use crate::conventions::Text;

const fn mistake(
    id: &'static str,
    en: &'static str,
    zh: &'static str,
    edit: fn(&mut Mistake),
) -> GradientMistake {
    GradientMistake {
        id,
        says: Text { en, zh },
        edit,
    }
}

/// Mistakes of the backward pass, simplest first.
pub static MISTAKES: &[GradientMistake] = &[
    mistake(
        "grad-scale-missing",
        "The scale is missing from dQ and dK.",
        "dQ和dK漏乘了缩放系数。",
        |mistake| mistake.scales = 0,
    ),
    mistake(
        "grad-scale-twice",
        "The scale is in dQ and dK twice.",
        "dQ和dK的缩放系数乘了两次。",
        |mistake| mistake.scales = 2,
    ),
    mistake(
        "grad-row-term-missing",
        "The row term is missing: dS = P·dP instead of P·(dP − Σ P·dP).",
        "漏了每行的修正项：dS = P·dP，而应为P·(dP − Σ P·dP)。",
        |mistake| mistake.row_term = false,
    ),
    mistake(
        "grad-softmax-missing",
        "The gradient of the weights was taken for that of the scores: the softmax was left out.",
        "把权重的梯度当成了得分的梯度：漏了softmax的导数。",
        |mistake| mistake.softmax = false,
    ),
    mistake(
        "grad-mask-missing",
        "The backward pass applies no mask: dropped keys get a gradient.",
        "反向传播没有应用掩码：被屏蔽的键也得到了梯度。",
        |mistake| mistake.mask = Masked::No,
    ),
    mistake(
        "grad-mask-missing",
        "The backward pass applies no mask: dropped keys get a gradient.",
        "反向传播没有应用掩码：被屏蔽的键也得到了梯度。",
        |mistake| mistake.mask = Masked::Renormed,
    ),
    mistake(
        "grad-groups-not-summed",
        "Gradients of shared keys and values are not summed over the query heads of a group: one \
         head's alone.",
        "共享键值头的梯度没有对组内的查询头求和：只取了其中一个头的。",
        |mistake| mistake.groups = Groups::First,
    ),
    mistake(
        "grad-groups-not-summed",
        "Gradients of shared keys and values are not summed over the query heads of a group: one \
         head's alone.",
        "共享键值头的梯度没有对组内的查询头求和：只取了其中一个头的。",
        |mistake| mistake.groups = Groups::Last,
    ),
    mistake(
        "grad-groups-averaged",
        "Gradients of shared keys and values are averaged over the query heads of a group instead of \
         summed.",
        "共享键值头的梯度在组内取了平均，而不是求和。",
        |mistake| mistake.groups = Groups::Mean,
    ),
    mistake(
        "grad-groups-tiled",
        "Gradients of shared keys and values are summed over every H_kv-th query head, as if heads were \
         tiled, instead of over a group's.",
        "共享键值头的梯度按平铺方式求和（每隔H_kv个查询头），而不是对组内的查询头求和。",
        |mistake| mistake.groups = Groups::Tiled,
    ),
    mistake(
        "grad-q-k-swapped",
        "dQ and dK are exchanged.",
        "dQ和dK互换了。",
        |mistake| mistake.swapped = true,
    ),
    mistake(
        "grad-softcap-missing",
        "The derivative of the softcap, 1 − tanh², is missing.",
        "漏了softcap的导数1 − tanh²。",
        |mistake| mistake.softcap = false,
    ),
    mistake(
        "grad-dropout-missing",
        "The backward pass applies no dropout.",
        "反向传播没有应用dropout。",
        |mistake| mistake.dropout = false,
    ),
    mistake(
        "grad-rotary-missing",
        "dQ and dK are those of the rotated queries and keys: they are not turned back.",
        "dQ和dK是旋转之后的查询和键的梯度：没有转回来。",
        |mistake| mistake.turned_back = false,
    ),
    mistake(
        "grad-rotary-direction",
        "dQ and dK are turned on instead of back.",
        "dQ和dK继续正向旋转，而没有转回来。",
        |mistake| mistake.turned_on = true,
    ),
    mistake(
        "grad-bias-scaled",
        "The gradient of the bias is multiplied by the scale, though the bias is added after it.",
        "偏置的梯度多乘了缩放系数，而偏置是在缩放之后加的。",
        |mistake| mistake.bias_scaled = true,
    ),
    mistake(
        "grad-bias-capped",
        "The gradient of the bias is multiplied by the derivative of the softcap, though the bias is \
         added after it.",
        "偏置的梯度多乘了softcap的导数，而偏置是在softcap之后加的。",
        |mistake| mistake.bias_capped = true,
    ),
    mistake(
        "grad-bias-not-summed",
        "The gradient of the bias is not summed over the batch entries that share it: one's alone.",
        "偏置的梯度没有对共享它的批次求和：只取了其中一个的。",
        |mistake| mistake.bias = Groups::First,
    ),
    mistake(
        "grad-bias-not-summed",
        "The gradient of the bias is not summed over the batch entries that share it: one's alone.",
        "偏置的梯度没有对共享它的批次求和：只取了其中一个的。",
        |mistake| mistake.bias = Groups::Last,
    ),
    mistake(
        "grad-bias-averaged",
        "The gradient of the bias is averaged over the scores that share a number of it, instead of \
         summed.",
        "偏置的梯度在共享同一个数的得分上取了平均，而不是求和。",
        |mistake| mistake.bias = Groups::Mean,
    ),
    mistake(
        "grad-sinks-sign",
        "The gradient of the sinks has the wrong sign: a sink takes weight from every key.",
        "sink的梯度符号反了：sink会从每个键分走权重。",
        |mistake| mistake.sinks_sign = -1.0,
    ),
    mistake(
        "grad-sign",
        "The gradients have the wrong sign.",
        "梯度的符号反了。",
        |mistake| mistake.sign = -1.0,
    ),
];
