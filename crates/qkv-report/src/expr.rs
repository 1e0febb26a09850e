//! A formula with the numbers put in: it can be printed, and redone from what was printed.

use crate::number::{self, Shown, shown};
use crate::words::Words;

/// A formula with numbers.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Num(f64),
    Sum(Vec<Expr>),
    Difference(Box<Expr>, Box<Expr>),
    Product(Vec<Expr>),
    Quotient(Box<Expr>, Box<Expr>),
    Square(f64),
    Call(Function, Box<Expr>),
    Max(Vec<Expr>),
    /// Terms that are not written out, with what they come to.
    Rest {
        of: Rest,
        count: usize,
        value: f64,
    },
}

/// What is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    Terms,
    Keys,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Exp,
    Tanh,
    Sqrt,
    Ln,
    Sin,
    Cos,
    Abs,
}

/// A space that no line break may replace.
pub(crate) const TIED: char = '\u{a0}';

/// Longer sums are shortened in the middle.
pub(crate) const LONG_SUM: usize = 32;
/// Terms left at each end of a shortened sum.
const ENDS: usize = 3;

pub(crate) fn num(value: f64) -> Expr {
    Expr::Num(value)
}

pub(crate) fn minus(a: Expr, b: Expr) -> Expr {
    Expr::Difference(Box::new(a), Box::new(b))
}

pub(crate) fn over(a: Expr, b: Expr) -> Expr {
    Expr::Quotient(Box::new(a), Box::new(b))
}

pub(crate) fn call(function: Function, of: Expr) -> Expr {
    Expr::Call(function, Box::new(of))
}

pub(crate) fn times(a: f64, b: f64) -> Expr {
    Expr::Product(vec![num(a), num(b)])
}

/// Σ of the terms, shortened in the middle if there are many.
pub(crate) fn sum(mut terms: Vec<Expr>) -> Expr {
    match terms.len() {
        0 => return num(0.0),
        1 => return terms.remove(0),
        _ => {}
    }
    if terms.len() > LONG_SUM {
        let last = terms.split_off(terms.len() - ENDS);
        let middle = terms.split_off(ENDS);
        terms.push(Expr::Rest {
            of: Rest::Terms,
            count: middle.len(),
            value: middle.iter().map(Expr::value).sum(),
        });
        terms.extend(last);
    }
    Expr::Sum(terms)
}

/// Σ aᵢ·bᵢ.
pub(crate) fn dot(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> Expr {
    sum(a.zip(b).map(|(a, b)| times(a, b)).collect())
}

impl Expr {
    /// What it comes to, in full precision.
    pub(crate) fn value(&self) -> f64 {
        self.with(&|leaf| leaf)
    }

    /// What it comes to from the digits that are printed.
    pub(crate) fn value_from_print(&self, digits: usize) -> f64 {
        self.with(&|leaf| shown(leaf, digits).value)
    }

    fn with(&self, leaf: &dyn Fn(f64) -> f64) -> f64 {
        match self {
            Expr::Num(value) | Expr::Rest { value, .. } => leaf(*value),
            Expr::Sum(terms) => terms.iter().map(|term| term.with(leaf)).sum(),
            Expr::Difference(a, b) => a.with(leaf) - b.with(leaf),
            Expr::Product(factors) => factors.iter().map(|factor| factor.with(leaf)).product(),
            Expr::Quotient(a, b) => a.with(leaf) / b.with(leaf),
            Expr::Square(value) => leaf(*value) * leaf(*value),
            Expr::Call(function, of) => function.of(of.with(leaf)),
            Expr::Max(values) => {
                values
                    .iter()
                    .map(|value| value.with(leaf))
                    .fold(
                        f64::NEG_INFINITY,
                        |a, b| if b > a || b.is_nan() { b } else { a },
                    )
            }
        }
    }

    /// Calls `visit` with every number in it.
    pub(crate) fn leaves(&self, visit: &mut dyn FnMut(f64)) {
        match self {
            Expr::Num(value) | Expr::Square(value) | Expr::Rest { value, .. } => visit(*value),
            Expr::Sum(list) | Expr::Product(list) | Expr::Max(list) => {
                list.iter().for_each(|expr| expr.leaves(visit));
            }
            Expr::Difference(a, b) | Expr::Quotient(a, b) => {
                a.leaves(visit);
                b.leaves(visit);
            }
            Expr::Call(_, of) => of.leaves(visit),
        }
    }

    /// Whether `value` is what `f64` leaves of terms that cancel: 0 on paper.
    pub(crate) fn cancels_to(&self, value: f64) -> bool {
        let terms: f64 = match self {
            Expr::Sum(terms) => terms.iter().map(|term| term.value().abs()).sum(),
            Expr::Difference(a, b) => a.value().abs() + b.value().abs(),
            _ => return false,
        };
        value != 0.0 && value.abs() < 1e-15 * terms
    }

    /// Whether every number in it is printed in full, or does not matter beside a 0.
    pub(crate) fn exact(&self, digits: usize) -> bool {
        let all = |list: &[Expr]| list.iter().all(|expr| expr.exact(digits));
        let zero = |expr: &Expr| matches!(expr, Expr::Num(0.0));
        match self {
            Expr::Num(value) | Expr::Square(value) | Expr::Rest { value, .. } => {
                shown(*value, digits).exact
            }
            Expr::Sum(terms) | Expr::Max(terms) => all(terms),
            Expr::Product(factors) => factors.iter().any(zero) || all(factors),
            Expr::Difference(a, b) => a.exact(digits) && b.exact(digits),
            Expr::Quotient(a, b) => zero(a) || a.exact(digits) && b.exact(digits),
            Expr::Call(_, of) => of.exact(digits),
        }
    }

    pub(crate) fn print(&self, digits: usize, words: &dyn Words) -> String {
        match self {
            Expr::Num(value) => shown(*value, digits).text,
            Expr::Sum(terms) => print_sum(terms, digits, words),
            Expr::Difference(a, b) => {
                let right = match **b {
                    Expr::Product(_) | Expr::Quotient(..) => b.print(digits, words),
                    _ => b.grouped(digits, words),
                };
                format!("{}{TIED}−{TIED}{right}", a.print(digits, words))
            }
            Expr::Product(factors) => {
                let factors: Vec<_> = factors.iter().map(|f| f.grouped(digits, words)).collect();
                factors.join("·")
            }
            Expr::Quotient(a, b) => {
                // A sign in front of a fraction needs no parentheses.
                let above = a.grouped(digits, words);
                let above = match **a {
                    Expr::Num(_) if !above.contains('×') => a.print(digits, words),
                    _ => above,
                };
                format!("{above}/{}", b.grouped(digits, words))
            }
            Expr::Square(value) => format!("{}²", num(*value).grouped(digits, words)),
            Expr::Call(Function::Abs, of) => format!("|{}|", of.print(digits, words)),
            Expr::Call(Function::Sqrt, of) => format!("√{}", of.grouped(digits, words)),
            Expr::Call(function, of) => {
                format!("{}({})", function.name(), of.print(digits, words))
            }
            Expr::Max(values) => {
                let values: Vec<_> = values.iter().map(|v| v.print(digits, words)).collect();
                format!("max({})", values.join(", "))
            }
            Expr::Rest { of, count, value } => {
                let count = number::count(*count);
                let value = shown(*value, digits).text;
                match of {
                    Rest::Terms => words.more_terms(&count, &value),
                    Rest::Keys => words.other_keys(&count, &value),
                }
                .replace(' ', &TIED.to_string())
            }
        }
    }

    /// In parentheses where a product, quotient or difference needs them.
    fn grouped(&self, digits: usize, words: &dyn Words) -> String {
        let text = self.print(digits, words);
        let needs = match self {
            Expr::Num(_) => text.starts_with('−') || text.contains('×'),
            Expr::Sum(_) | Expr::Difference(..) | Expr::Quotient(..) | Expr::Product(_) => true,
            Expr::Square(_) | Expr::Call(..) | Expr::Max(_) | Expr::Rest { .. } => false,
        };
        if needs { format!("({text})") } else { text }
    }
}

fn print_sum(terms: &[Expr], digits: usize, words: &dyn Words) -> String {
    let mut out = String::new();
    for (at, term) in terms.iter().enumerate() {
        let text = term.print(digits, words);
        match (at, text.strip_prefix('−'), term) {
            (0, ..) => out.push_str(&text),
            (_, Some(positive), Expr::Num(_)) => {
                out.push_str(&format!(" −{TIED}{positive}"));
            }
            _ => out.push_str(&format!(" +{TIED}{text}")),
        }
    }
    out
}

impl Function {
    fn of(self, x: f64) -> f64 {
        match self {
            Function::Exp => x.exp(),
            Function::Tanh => x.tanh(),
            Function::Sqrt => x.sqrt(),
            Function::Ln => x.ln(),
            Function::Sin => x.sin(),
            Function::Cos => x.cos(),
            Function::Abs => x.abs(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Function::Exp => "exp",
            Function::Tanh => "tanh",
            Function::Sqrt => "√",
            Function::Ln => "ln",
            Function::Sin => "sin",
            Function::Cos => "cos",
            Function::Abs => "abs",
        }
    }
}

/// Beyond this many decimals `f64` itself is too coarse to tell a rounded display from a fault.
const MOST_DIGITS_REDONE: usize = 12;

/// What a formula gives from its printed digits, if that is not what is printed for `value`.
pub(crate) fn other_digits(expr: &Expr, value: f64, digits: usize) -> Option<Shown> {
    if digits > MOST_DIGITS_REDONE || !value.is_finite() {
        return None;
    }
    let redone = expr.value_from_print(digits);
    if !redone.is_finite() {
        return None;
    }
    let own = shown(value, digits);
    let redone = number::rounded_like(redone, &own, digits);
    (redone.value != own.value).then(|| number::padded_like(redone, &own, digits))
}
