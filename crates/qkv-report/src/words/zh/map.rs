//! What is said beside pictures of heads, in Chinese.

use super::Chinese;
use crate::words::map::{Maps, PageWords};
use crate::words::ranges;

impl Maps for Chinese {
    fn map_title(&self, model: &str) -> String {
        match model {
            "" => "注意力权重".into(),
            model => format!("{model} 的注意力"),
        }
    }
    fn map_sizes(&self, layers: usize, heads: usize, rows: usize, keys: usize) -> String {
        let tokens = match rows == keys {
            true => format!("{keys} 个词元"),
            false => format!("{rows} 个查询，{keys} 个键"),
        };
        format!("{layers} 层 × {heads} 头 · {tokens}")
    }
    fn map_kv_heads(&self, kv_heads: usize) -> String {
        format!("每层 {kv_heads} 个键值头")
    }
    fn map_batch(&self, entry: usize, entries: usize) -> String {
        format!("批次 {entries} 条中的第 {entry} 条（从 0 数起）")
    }
    fn not_an_explanation(&self) -> &'static str {
        "权重不是解释：它们只说明一个头从哪里取值，并不说明模型为什么这样回答。大的权重可能什么也没有带来，小的权重可能带来很多。"
    }
    fn map_tokens(&self) -> &'static str {
        "词元"
    }
    fn map_conventions(&self) -> &'static str {
        "所用的约定"
    }
    fn map_all_heads(&self) -> &'static str {
        "所有的头"
    }
    fn map_shades(&self, statistic: &str, largest: &str) -> String {
        format!("{statistic}，各行的平均；█ 为 {largest}")
    }
    fn map_first(&self, token: &str, share: &str, aside: bool) -> String {
        let aside = match aside {
            true => "；这里把它放在一边：不画，不列出，也不计入熵和距离",
            false => "",
        };
        format!("第一个词元 {token} 平均得到 {share} 的权重{aside}。")
    }
    fn map_residual(&self) -> &'static str {
        "残差 ‖x‖：进入各层与离开最后一层时，对词元取平均"
    }
    fn map_residual_normed(&self) -> &'static str {
        "归一化后"
    }
    fn map_residual_largest(&self, size: &str, stage: &str, token: &str) -> String {
        format!("最大的是 {size}，{stage} 处的词元 {token}。")
    }
    fn map_only_top(&self, top: usize) -> String {
        format!("每行只保留了最大的 {top} 个权重。")
    }
    fn map_head(&self, layer: usize, head: usize, kv: Option<(usize, &[usize])>) -> String {
        let kv = match kv {
            Some((kv, [_])) => format!("，键值头 {kv}"),
            Some((kv, heads)) => format!("，键值头 {kv}（由头 {} 共用）", ranges(heads, "、")),
            None => String::new(),
        };
        format!("第 {layer} 层，第 {head} 头{kv}")
    }
    fn map_one_head(&self) -> &'static str {
        "--layer L --head H 显示一个头，--heads-by 给头排序，--html map.html 显示全部。"
    }
    fn map_averages(&self, entropy: &str, distance: Option<&str>, first: &str) -> String {
        let distance = distance.map_or(String::new(), |far| format!("，平均距离 {far} 个词元"));
        format!("熵 {entropy} 奈特{distance}，第一个词元得到 {first}。")
    }
    fn map_links(&self, most: usize) -> String {
        format!("最强的联系，每个查询 ← 至多 {most} 个键")
    }
    fn map_no_key(&self) -> &'static str {
        "没有保留任何键"
    }
    fn map_more_heads(&self, more: usize) -> String {
        format!("还有 {more} 个头；选少一些层或头，就逐个显示。")
    }
    fn map_nan_rows(&self, head: &str, rows: usize) -> String {
        format!("{head} 有 {rows} 行含 NaN；它的平均值也是 NaN。")
    }
    fn map_sums(&self, low: &str, high: &str) -> String {
        format!(
            "各行之和在 {low} 与 {high} 之间，而不是 1：有汇（sink）、丢弃（dropout）、略去的权重，或者不是 softmax 之后的权重。"
        )
    }
    fn map_outside(&self, weights: usize) -> String {
        format!("有 {weights} 个权重小于 0 或大于 1。")
    }
    fn by_title(&self, by: &str, texts: usize) -> String {
        format!("按 {by} 排列的头，共 {texts} 篇文本")
    }
    fn by_says(&self, by: &str) -> String {
        match by {
            "previous" => "前一个词元得到的权重。对照：再前一个。",
            "first" => "第一个词元得到的权重。对照：第二个。",
            "own" => "查询自己的词元得到的权重。对照：前一个。",
            "same" => "前面相同的词元得到的权重。对照：它们后面的那个。",
            _ => "前面相同的词元之后的那个词元得到的权重。对照：这些相同的词元本身。",
        }
        .into()
    }
    fn by_pair(&self, from: &str, to: &str) -> String {
        format!("在“{from}”的行里，“{to}”得到的权重。")
    }
    fn by_columns(&self, target: &str, control: &str) -> [String; 4] {
        ["头".into(), target.into(), control.into(), "行数".into()]
    }
    fn by_control(&self, control: Option<&str>) -> String {
        control.map_or_else(|| "对照".into(), |word| format!("对照：{word}"))
    }
    fn by_best_control(&self, head: &str, value: &str) -> String {
        format!("若以对照为目标，排在第一的是另一个头：{head}，{value}。")
    }
    fn by_proves_little(&self) -> &'static str {
        "在这样的表里排第一说明不了多少：头这么多，对任何一个键都会有几个头很强。"
    }
    fn by_all_zero(&self) -> &'static str {
        "每个头都恰好是 0：对这些查询，这些键被去掉了；因果模型里后面的词元就是这样。"
    }
    fn by_none(&self) -> &'static str {
        "没有一行有这样的键。"
    }
    fn page_words(&self) -> &'static PageWords {
        &PAGE
    }
}

const PAGE: PageWords = PageWords {
    pattern: "图样",
    entropy: "熵（奈特）",
    distance: "平均距离（词元）",
    first: "第一个词元的权重",
    previous: "前一个词元的权重",
    own: "自己的词元的权重",
    colour: "每个头显示它的",
    layer: "第 {l} 层",
    head: "第 {h} 头",
    kv: "键值头 {k}",
    one_head: "第 {l} 层，第 {h} 头",
    shared: "使用键值头 {k}，与头 {s} 共用。",
    lines: "连线",
    matrix: "矩阵",
    queries: "查询",
    keys: "键",
    keys_of_kv: "键值头 {k} 的键",
    set_aside: "把第一个词元放在一边",
    query: "查询",
    weight: "权重",
    pick_query: "指向一个查询，或用 ↑ 和 ↓ 选择：它的联系会显示出来，键列在下面。",
    pick_cell: "指向一格，或用方向键移动。行是查询，列是键。",
    about: "约 {w}",
    shade: "颜色深浅与权重的平方根成正比。",
    merged: "每格代表 {n} × {n} 个权重，显示其中最大的。",
    rounded: "每行最强的 {k} 个权重准确到 4 位小数，其余的误差在 {e} 以内。",
    nothing: "这一行没有保留任何键。",
    not_a_number: "不是数",
    before: "上一个头",
    after: "下一个头",
    terms: "逐项计算 q·k",
    terms_say: "查询 {q} 与键 {k}：得分是 {n} 个乘积之和。",
    terms_missing: "这个页面里没有这个头的查询和键。用 --keep q,k，并用 --layer 和 --head 选少数几个头，或者文本较短时，就会有。",
    terms_sum: "和 q·k",
    terms_scaled: "乘以缩放系数 {s}",
    terms_weight: "掩码和 softmax 之后的权重",
    terms_column: "列",
    terms_product: "乘积",
    terms_running: "累加到此",
    grid_help: "方向键移动，回车打开。",
    no_script: "这个页面的图由它自带的脚本绘制，而脚本被关闭了。",
    old_browser: "这个浏览器不能解压权重；新一些的可以。",
};
