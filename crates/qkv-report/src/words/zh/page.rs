//! Chinese: the page in a browser.

use super::Chinese;
use crate::words::Page;

impl Page for Chinese {
    fn language(&self) -> &'static str {
        "zh-CN"
    }
    fn skip(&self) -> &'static str {
        "跳到计算过程"
    }
    fn outline(&self) -> &'static str {
        "步骤"
    }
    fn fold_all(&self) -> &'static str {
        "全部折叠"
    }
    fn unfold_all(&self) -> &'static str {
        "全部展开"
    }
    fn how_to_follow(&self) -> &'static str {
        "把鼠标移到一个数上，或者轻触它，就能看到它的来历：页面下方显示它的算式，式中各数在页面各处同时点亮。\
         用键盘时：按Tab进入矩阵或算式，用方向键在各数之间移动，按Enter跳到它的算式，按Esc关闭。"
    }
    fn origin(&self) -> &'static str {
        "这个数的来历"
    }
    fn no_line(&self) -> &'static str {
        "是给定的数，或者本页没有写出它的算式"
    }
    fn go_to_line(&self) -> &'static str {
        "跳到算式"
    }
    fn close(&self) -> &'static str {
        "关闭"
    }
    fn blank(&self) -> &'static str {
        "空格"
    }
    fn matrix(&self, name: &str) -> String {
        format!("矩阵{name}")
    }
    fn columns_of(&self, name: &str, first: &str, last: &str) -> String {
        format!("矩阵{name}，第{first}列到第{last}列")
    }
}
