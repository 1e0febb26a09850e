//! How sentences are written, and that they fit the numbers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{settings, with_gradient, with_matrices, with_problem};
use qkv::position::{Rotary, Scaling};
use qkv::{Alibi, Attention, Block, Causal, Dropout, KeyLengths, Mask, Place, Sinks, View};
use qkv_report::{Lang, text};

fn is_chinese(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// A space between Chinese and Latin, outside tables.
fn spaced(line: &str) -> bool {
    let chars: Vec<char> = line.trim().chars().collect();
    let table = chars.windows(2).any(|two| two == [' ', ' ']);
    let latin = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '−';
    let apart = |at: &[char]| {
        at[1] == ' ' && (is_chinese(at[0]) && latin(at[2]) || latin(at[0]) && is_chinese(at[2]))
    };
    !table && chars.windows(3).any(apart)
}

#[test]
fn chinese_has_one_word_for_a_thing_and_no_spaces_around_latin() {
    assert!(spaced("种子 7") && spaced("7 个") && !spaced("种子7个（W_O）  1 个"));
    for seed in 0..80 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| {
                let text = text(subject, &settings(Lang::Zh, 100_000));
                for line in text.lines() {
                    assert!(!spaced(line), "{line}");
                    for other in ["分数", "汇点", "丢弃", "发问，与"] {
                        assert!(!line.contains(other), "{other} in {line}");
                    }
                }
            });
        });
    }
}

/// Both languages of attention over queries, keys and values of one column.
fn columns(block: &Block<'_>, q: &[f64], k: &[f64], v: &[f64]) -> [String; 2] {
    let three = [(q, [q.len(), 1]), (k, [k.len(), 1]), (v, [v.len(), 1])];
    let mut out = [String::new(), String::new()];
    with_matrices(block, three, |subject| {
        out = [Lang::En, Lang::Zh].map(|lang| text(subject, &settings(lang, 1000)));
    });
    out
}

#[track_caller]
fn says(text: &[String; 2], english: &str, chinese: &str) {
    for (text, what) in text.iter().zip([english, chinese]) {
        assert!(text.contains(what), "no {what:?} in\n{text}");
    }
}

#[track_caller]
fn says_not(text: &[String; 2], english: &str, chinese: &str) {
    for (text, what) in text.iter().zip([english, chinese]) {
        assert!(!text.contains(what), "{what:?} in\n{text}");
    }
}

/// Value 1 has 52%, but value 0 is nearer to the output.
#[test]
fn nearer_is_said_only_where_it_is_true() {
    let block = Block::default();
    let plain = Block {
        attention: Attention {
            scale: qkv::Scale::Factor(1.0),
            ..Attention::default()
        },
        ..Block::default()
    };
    let text = columns(&plain, &[1.0], &[0.0, 4.0, 3.9], &[1.0, 0.0, 100.0]);
    says(
        &text,
        "Row 0 puts 52.00% on key 1, so value 1 counts most in its output.",
        "第0行把52.00%放在键1上，所以输出中值1所占份额最大。",
    );
    says_not(&text, "nearer", "更近");
    let equal = columns(&block, &[1.0], &[0.0, 1.0], &[5.0, 5.0]);
    says(
        &equal,
        "so value 1 counts most",
        "所以输出中值1所占份额最大",
    );
    let near = columns(&block, &[1.0], &[0.0, 1.0], &[5.0, 6.0]);
    says(
        &near,
        "Row 0 puts 73.11% on key 1, and its output lies nearer to value 1 than to the other.",
        "第0行把73.11%放在键1上，输出离值1比离另一个值更近。",
    );
}

#[test]
fn ties_are_ties() {
    let block = Block::default();
    let all = columns(&block, &[0.0], &[0.0, 1.0, 2.0], &[3.0, 4.0, 5.0]);
    says(
        &all,
        "Query 0 asks, and all 3 keys match it equally, with 0.",
        "查询0与全部3个键同样匹配，得分都是0。",
    );
    says(
        &all,
        "Query 0 gives all 3 keys the same share, 33.33% each.",
        "查询0给全部3个键同样多的份额，各33.33%。",
    );
    says(
        &all,
        "Row 0 puts 33.33% on each of its 3 keys: its output is the average of their values.",
        "第0行在3个键上各放33.33%：输出就是这些值的平均。",
    );
    says(
        &all,
        "row 0: sum 1, every weight 0.3333",
        "第0行：和为1，权重都是0.3333",
    );
    let two = columns(&block, &[1.0], &[1.0, 1.0], &[3.0, 4.0]);
    says(
        &two,
        "gives both keys the same share, 50% each",
        "全部2个键同样多的份额，各50%",
    );
    // Two of three share the first place.
    let some = columns(&block, &[1.0], &[1.0, 1.0, 0.0], &[3.0, 4.0, 5.0]);
    says(
        &some,
        "keys 0, 1 match it best, equally with 1",
        "查询0与键0、1并列最匹配，得分都是1",
    );
    says(
        &some,
        "Query 0 gives the same share, 42.23%, to each of keys 0, 1; no other key gets as much.",
        "查询0给键0、1同样多的份额，各42.23%，并列最大。",
    );
    says(
        &some,
        "largest weight 0.4223 at keys 0, 1",
        "最大权重0.4223在键0、1",
    );
    says(
        &some,
        "42.23% on each of keys 0, 1, its largest shares",
        "在键0、1上各放42.23%",
    );
    // Different, but not as they are printed.
    let nearly = columns(&block, &[1.0], &[1.0, 1.000_001], &[3.0, 4.0]);
    says(
        &nearly,
        "both keys almost the same share, 50.00% each",
        "几乎同样多的份额，各50.00%",
    );
    let sink = Block {
        attention: Attention {
            sinks: Some(Sinks(vec![1.0])),
            ..Attention::default()
        },
        ..Block::default()
    };
    let sink = columns(&sink, &[1.0], &[1.0, 1.0], &[3.0, 4.0]);
    says(
        &sink,
        "gives both keys the same share, 33.33% each; 33.33% goes to the sink, to no key at all.",
        "各33.33%；33.33%归sink，不属于任何键。",
    );
}

#[test]
fn one_value_is_no_blend() {
    let mut alone = 0;
    let mut nothing = 0;
    for seed in 0..40 {
        let block = Block {
            attention: Attention {
                dropout: Some(Dropout { p: 0.5, seed }),
                ..Attention::default()
            },
            ..Block::default()
        };
        let text = columns(&block, &[0.0], &[0.0, 1.0, 2.0, 3.0], &[3.0, 4.0, 5.0, 6.0]);
        let dropped = |line: &&str| line.contains("w'[0,") && line.ends_with("·0 = 0");
        let zeros = text[0].lines().filter(dropped).count();
        match zeros {
            3 => {
                alone += 1;
                says(&text, "alone: its output is value", "输出就是值");
                says(&text, " times 0.5.", "乘以0.5。");
            }
            4 => {
                nothing += 1;
                says(
                    &text,
                    "Nothing is left of row 0, so its output is 0.",
                    "没有剩下任何权重",
                );
            }
            2 => says(
                &text,
                "50% on each of its 2 keys: its output is the average",
                "值的平均",
            ),
            _ => says(&text, "blend of several values", "几个值的混合"),
        }
        assert_eq!(text[0].contains("blend"), zeros < 2, "{}", text[0]);
    }
    assert!(alone > 3 && nothing > 0, "{alone} {nothing}");
}

#[test]
fn nothing_kept_is_said_as_it_is() {
    let keep = [false, false];
    let mut block = Block::default();
    let view = View::new(&keep, &[1, 2]).unwrap();
    block.attention.masks.push(Mask::keep(view));
    let text = columns(&block, &[1.0], &[1.0, 2.0], &[3.0, 4.0]);
    says(
        &text,
        "blank = 0: no weight is larger",
        "空白 = 0：没有更大的权重",
    );
    says(
        &text,
        "row 0: sum 0, no key kept",
        "第0行：和为0，没有保留任何键",
    );
    says_not(&text, "█ = 0", "█ = 0");
    let nan = columns(&Block::default(), &[f64::NAN], &[1.0, 2.0], &[3.0, 4.0]);
    says(&nan, "row 0: sum NaN\n", "第0行：和为NaN\n");
    let empty = columns(&Block::default(), &[1.0], &[], &[]);
    says(
        &empty,
        "row 0 finds no key, as there are none",
        "没有任何键可看",
    );
    says(&empty, "there are no keys; ", "没有键；");
    says_not(&empty, "fully masked", "全部屏蔽");
    says_not(&empty, "the mask comes before", "先加掩码");
    let no_query = columns(&Block::default(), &[], &[1.0], &[3.0]);
    says(
        &no_query,
        "Q is 0 × 1: it holds no numbers.",
        "Q是0 × 1的，没有数。",
    );
}

/// A sentence under the table of the last head says which head it means.
#[test]
fn a_finding_names_its_head() {
    let mut named = 0;
    for seed in 0..60 {
        with_problem(seed, |problem| {
            let english = text(&problem.subject, &settings(Lang::En, 1000));
            let heads = problem.subject.steps.get(qkv::StepName::Q).unwrap().shape()[1];
            for line in english.lines().filter(|line| line.contains(" asks, and ")) {
                assert_eq!(line.contains("head 0"), heads > 1, "{line}");
                named += usize::from(heads > 1);
            }
        });
    }
    assert!(named > 10, "{named}");
}

#[test]
fn the_reason_of_the_scale_is_about_many_columns() {
    let one = columns(&Block::default(), &[1.0], &[1.0, 2.0], &[3.0, 4.0]);
    says(
        &one,
        "with one column nothing changes",
        "只有一列时没有变化",
    );
    says(
        &one,
        "with 64 columns about √64 = 8 times as wide",
        "例如64列时大约是√64 = 8倍",
    );
}

#[test]
fn the_formula_is_explained_and_a_mask_is_named_only_where_there_is_one() {
    let plain = columns(&Block::default(), &[1.0], &[1.0, 2.0], &[3.0, 4.0]);
    says(
        &plain,
        "here there is no mask, so nothing is added",
        "这里没有掩码",
    );
    says(&plain, "ᵀ turns a matrix over", "ᵀ表示转置");
    says(
        &plain,
        "So Q (1,1) has the shape [1, 1, 1, 1].",
        "所以Q (1,1)的形状写成[1, 1, 1, 1]。",
    );
    says(
        &plain,
        "(a word, or a piece of one)",
        "词元（token，即一个词或词的一部分）",
    );
    says(
        &plain,
        "Q = X·W_Q, K = X·W_K, V = X·W_V.",
        "Q = X·W_Q，K = X·W_K",
    );
    says(&plain, "d_k = 1 column in", "d_k = 1列");
    says_not(&plain, "tanh", "tanh");
    let masked = Block {
        attention: Attention {
            causal: Some(Causal::TopLeft),
            softcap: Some(5.0),
            ..Attention::default()
        },
        ..Block::default()
    };
    let masked = columns(&masked, &[1.0], &[1.0, 2.0], &[3.0, 4.0]);
    says(
        &masked,
        "see “Mask: which keys each query may see” below",
        "见下文“掩码：",
    );
    says(&masked, "tanh(x) is nearly x", "tanh(x)在x很小时");
    says_not(&masked, "no mask", "没有掩码");
}

#[test]
fn lse_shows_each_step() {
    let two = columns(&Block::default(), &[1.0], &[1.0, 0.0], &[3.0, 4.0]);
    let line = "lse[0] = 1 + ln(1.3679) ≈ 1 + 0.3133 ≈ 1.3133\n";
    says(&two, line, line);
    says(&two, "short for log-sum-exp", "log-sum-exp的缩写");
    let sink = Block {
        attention: Attention {
            sinks: Some(Sinks(vec![1.0])),
            ..Attention::default()
        },
        ..Block::default()
    };
    let sink = columns(&sink, &[1.0], &[1.0, 0.0], &[3.0, 4.0]);
    let line = "Σ e[0,·] = 1 + 0.3679 ≈ 1.3679\n  lse[0] = 1 + ln(1.3679)";
    says(&sink, line, line);
}

#[test]
fn positions_and_frequencies_are_worked_out() {
    let block = |scaling| Block {
        rotary: Some(Rotary {
            scaling,
            ..Rotary::default()
        }),
        place: Place::Counted { start: 2 },
        attention: Attention {
            lengths: Some(KeyLengths(vec![1])),
            alibi: Some(Alibi { slopes: vec![0.5] }),
            ..Attention::default()
        },
        ..Block::default()
    };
    let of = |scaling| {
        let numbers = [1.0, 2.0, 3.0, 4.0, 0.5, 1.0, 0.0, 2.0];
        let four = (&numbers[..], [2, 4]);
        let mut out = [String::new(), String::new()];
        with_matrices(&block(scaling), [four, four, four], |subject| {
            out = [Lang::En, Lang::Zh].map(|lang| text(subject, &settings(lang, 1000)));
        });
        out
    };
    let linear = of(Scaling::Linear { factor: 2.0 });
    says(
        &linear,
        "f of pair 1 (columns 1 and 3) = 10000^(−2/4)/2 = 0.005\n",
        "第1对（第1列和第3列）的f = 10000^(−2/4)/2 = 0.005\n",
    );
    says(&linear, "  positions counted from 2\n", "  位置从2数起\n");
    says(
        &linear,
        "rotary scaling: every frequency divided by 2",
        "频率缩放：每个频率除以2",
    );
    says(
        &linear,
        "The last of 2 queries stands at the only key, so p_i = i − 1: p_0 = −1, p_1 = 0.",
        "2个查询中的最后一个与唯一的键位置相同，所以p_i = i − 1：p_0 = −1，p_1 = 0。",
    );
    says(
        &linear,
        "(and the first key at 2), so p_i = i + 1: p_0 = 1, p_1 = 2.",
        "（第一个键在位置2），所以p_i = i + 1：p_0 = 1，p_1 = 2。",
    );
    let llama = of(Scaling::Llama3 {
        factor: 4.0,
        low_freq_factor: 1.0,
        high_freq_factor: 9.0,
        original_length: 30.0,
    });
    says(
        &llama,
        "turns of pair 0 = (30·1)/6.2832 ≈ 4.7746",
        "第0对的圈数 = (30·1)/6.2832 ≈ 4.7746",
    );
    says(
        &llama,
        "ramp of pair 0 = (4.7746 − 1)/(9 − 1) ≈ 0.4718",
        "第0对的过渡系数",
    );
    says(
        &llama,
        "f of pair 0 (columns 0 and 2) = (1 − 0.4718)·(1/4) + 0.4718·1 ≈ 0.6039",
        "(1 − 0.4718)·(1/4) + 0.4718·1 ≈ 0.6039",
    );
    says(
        &llama,
        "f of pair 1 (columns 1 and 3) = 0.01/4 = 0.0025",
        "= 0.01/4 = 0.0025",
    );
}
