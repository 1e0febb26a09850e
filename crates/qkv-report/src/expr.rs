//! A formula with the numbers put in: it can be printed, and redone from what was printed.

use crate::entry::Number;
use crate::number::{self, shown};
use crate::words::Words;

/// A formula with numbers.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Num(Number),
    Sum(Vec<Expr>),
    Difference(Box<Expr>, Box<Expr>),
    Product(Vec<Expr>),
    Quotient(Box<Expr>, Box<Expr>),
    Square(Number),
    Power(Box<Expr>, Box<Expr>),
    Call(Function, Box<Expr>),
    Max(Vec<Expr>),
    /// Terms that are not written out, with what they come to.
    Rest {
        of: Rest,
        count: usize,
        value: f64,
    },
}

/// The numbers from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub(crate) fn at(value: f64) -> Range {
        Range::around(value, 0.0)
    }

    pub(crate) fn around(value: f64, half: f64) -> Range {
        Range {
            low: value - half,
            high: value + half,
        }
    }

    /// A little wider, on each side.
    pub(crate) fn widened(self, by: f64) -> Range {
        Range {
            low: self.low - by,
            high: self.high + by,
        }
    }

    pub(crate) fn holds(self, value: f64) -> bool {
        // What `f64` leaves of sums of decimals.
        let residue = 1e-12 * value.abs().max(1.0);
        self.low - residue <= value && value <= self.high + residue
            || self.low == value
            || self.high == value
    }

    /// For a function that is steady in both.
    fn corners(self, other: Range, of: impl Fn(f64, f64) -> f64) -> Range {
        let all = [
            of(self.low, other.low),
            of(self.low, other.high),
            of(self.high, other.low),
            of(self.high, other.high),
        ];
        Range {
            low: all.into_iter().fold(f64::INFINITY, f64::min),
            high: all.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// What is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    Terms,
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq)]
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

pub(crate) fn num(value: impl Into<Number>) -> Expr {
    Expr::Num(value.into())
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

pub(crate) fn times(a: impl Into<Number>, b: impl Into<Number>) -> Expr {
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
pub(crate) fn dot(a: impl Iterator<Item = Number>, b: impl Iterator<Item = Number>) -> Expr {
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
            Expr::Num(number) => leaf(number.value),
            Expr::Rest { value, .. } => leaf(*value),
            Expr::Sum(terms) => terms.iter().map(|term| term.with(leaf)).sum(),
            Expr::Difference(a, b) => a.with(leaf) - b.with(leaf),
            Expr::Product(factors) => factors.iter().map(|factor| factor.with(leaf)).product(),
            Expr::Quotient(a, b) => a.with(leaf) / b.with(leaf),
            Expr::Square(number) => leaf(number.value) * leaf(number.value),
            Expr::Power(a, b) => a.with(leaf).powf(b.with(leaf)),
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

    /// Between which numbers it lies, if each number in it lies between two: `leaf` says which.
    pub(crate) fn range(&self, leaf: &dyn Fn(&Number) -> Range) -> Range {
        match self {
            Expr::Num(number) => leaf(number),
            Expr::Rest { value, .. } => Range::at(*value),
            Expr::Sum(terms) => {
                let terms = terms.iter().map(|term| term.range(leaf));
                terms.fold(Range::at(0.0), |a, b| Range {
                    low: a.low + b.low,
                    high: a.high + b.high,
                })
            }
            Expr::Difference(a, b) => {
                let (a, b) = (a.range(leaf), b.range(leaf));
                Range {
                    low: a.low - b.high,
                    high: a.high - b.low,
                }
            }
            Expr::Product(factors) => {
                let factors = factors.iter().map(|factor| factor.range(leaf));
                factors.fold(Range::at(1.0), |a, b| a.corners(b, |a, b| a * b))
            }
            Expr::Quotient(a, b) => a.range(leaf).corners(b.range(leaf), |a, b| a / b),
            Expr::Square(number) => {
                let one = leaf(number);
                one.corners(one, |a, b| a * b)
            }
            Expr::Power(a, b) => a.range(leaf).corners(b.range(leaf), f64::powf),
            Expr::Call(function, of) => {
                let of = of.range(leaf);
                function.range(of)
            }
            Expr::Max(values) => {
                let values = values.iter().map(|value| value.range(leaf));
                values.fold(Range::at(f64::NEG_INFINITY), |a, b| Range {
                    low: a.low.max(b.low),
                    high: a.high.max(b.high),
                })
            }
        }
    }

    /// Calls `visit` with every number in it.
    pub(crate) fn leaves(&self, visit: &mut dyn FnMut(f64)) {
        match self {
            Expr::Num(number) | Expr::Square(number) => visit(number.value),
            Expr::Rest { value, .. } => visit(*value),
            Expr::Sum(list) | Expr::Product(list) | Expr::Max(list) => {
                list.iter().for_each(|expr| expr.leaves(visit));
            }
            Expr::Difference(a, b) | Expr::Quotient(a, b) | Expr::Power(a, b) => {
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
            Expr::Product(factors) => {
                return value != 0.0 && factors.iter().any(|f| f.cancels_to(f.value()));
            }
            _ => return false,
        };
        value != 0.0 && value.abs() < 1e-15 * terms
    }

    /// Whether every number in it is printed in full, or does not matter beside a 0.
    pub(crate) fn exact(&self, digits: usize) -> bool {
        let all = |list: &[Expr]| list.iter().all(|expr| expr.exact(digits));
        let zero = |expr: &Expr| matches!(expr, Expr::Num(number) if number.value == 0.0);
        match self {
            Expr::Num(number) | Expr::Square(number) => shown(number.value, digits).exact,
            Expr::Rest { value, .. } => shown(*value, digits).exact,
            Expr::Sum(terms) | Expr::Max(terms) => all(terms),
            Expr::Product(factors) => factors.iter().any(zero) || all(factors),
            Expr::Difference(a, b) | Expr::Power(a, b) => a.exact(digits) && b.exact(digits),
            Expr::Quotient(a, b) => zero(a) || a.exact(digits) && b.exact(digits),
            Expr::Call(_, of) => of.exact(digits),
        }
    }

    /// The formula in pieces; numbers keep their places.
    pub(crate) fn tokens(&self, digits: usize, words: &dyn Words) -> Vec<Token> {
        let mut writer = Writer {
            digits,
            words,
            tokens: Vec::new(),
        };
        writer.write(self);
        writer.tokens
    }
}

/// A piece of a printed formula.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A number as printed, with its sign.
    Number { text: String, number: Number },
    /// Signs and names of functions.
    Sign(String),
    /// Words of the language.
    Words(String),
}

impl Token {
    pub(crate) fn text(&self) -> &str {
        match self {
            Token::Number { text, .. } | Token::Sign(text) | Token::Words(text) => text,
        }
    }
}

/// Tokens one after the other, as characters.
pub(crate) fn joined(tokens: &[Token]) -> String {
    tokens.iter().map(Token::text).collect()
}

struct Writer<'a> {
    digits: usize,
    words: &'a dyn Words,
    tokens: Vec<Token>,
}

impl Writer<'_> {
    fn sign(&mut self, text: impl Into<String>) {
        self.tokens.push(Token::Sign(text.into()));
    }

    fn number(&mut self, number: &Number) {
        let text = shown(number.value, self.digits).text;
        self.tokens.push(Token::Number {
            text,
            number: number.clone(),
        });
    }

    fn list(&mut self, list: &[Expr], between: &str, grouped: bool) {
        for (at, expr) in list.iter().enumerate() {
            if at > 0 {
                self.sign(between);
            }
            match grouped {
                true => self.grouped(expr),
                false => self.write(expr),
            }
        }
    }

    fn write(&mut self, expr: &Expr) {
        match expr {
            Expr::Num(number) => self.number(number),
            Expr::Sum(terms) => self.sum(terms),
            Expr::Difference(a, b) => {
                self.write(a);
                self.sign(format!("{TIED}−{TIED}"));
                match **b {
                    Expr::Product(_) | Expr::Quotient(..) => self.write(b),
                    _ => self.grouped(b),
                }
            }
            Expr::Product(factors) => self.list(factors, "·", true),
            Expr::Quotient(a, b) => {
                match &**a {
                    // A sign in front of a fraction needs no parentheses.
                    Expr::Num(number) if !self.has_power(number) => self.number(number),
                    a => self.grouped(a),
                }
                self.sign("/");
                self.grouped(b);
            }
            Expr::Square(number) => {
                self.grouped(&Expr::Num(number.clone()));
                self.sign("²");
            }
            Expr::Power(a, b) => {
                self.grouped(a);
                self.sign("^(");
                self.write(b);
                self.sign(")");
            }
            Expr::Call(Function::Abs, of) => {
                self.sign("|");
                self.write(of);
                self.sign("|");
            }
            Expr::Call(Function::Sqrt, of) => {
                self.sign("√");
                self.grouped(of);
            }
            Expr::Call(function, of) => {
                self.sign(format!("{}(", function.name()));
                self.write(of);
                self.sign(")");
            }
            Expr::Max(values) => {
                self.sign("max(");
                self.list(values, ", ", false);
                self.sign(")");
            }
            Expr::Rest { of, count, value } => {
                let count = number::count(*count);
                let value = shown(*value, self.digits).text;
                let text = match of {
                    Rest::Terms => self.words.more_terms(&count, &value),
                    Rest::Keys => self.words.other_keys(&count, &value),
                };
                let text = text.replace(' ', &TIED.to_string());
                self.tokens.push(Token::Words(text));
            }
        }
    }

    /// A negative number after the first is taken away.
    fn sum(&mut self, terms: &[Expr]) {
        for (at, term) in terms.iter().enumerate() {
            let own = match term {
                Expr::Num(number) => shown(number.value, self.digits).text,
                _ => String::new(),
            };
            match (at, own.strip_prefix('−'), term) {
                (0, ..) => self.write(term),
                (_, Some(positive), Expr::Num(number)) => {
                    self.sign(" ");
                    self.tokens.push(Token::Number {
                        text: format!("−{TIED}{positive}"),
                        number: number.clone(),
                    });
                }
                _ => {
                    self.sign(format!(" +{TIED}"));
                    self.write(term);
                }
            }
        }
    }

    /// In parentheses where a product, quotient or difference needs them.
    fn grouped(&mut self, expr: &Expr) {
        let needs = match expr {
            Expr::Num(number) => {
                shown(number.value, self.digits).text.starts_with('−') || self.has_power(number)
            }
            Expr::Sum(_) | Expr::Difference(..) | Expr::Quotient(..) | Expr::Product(_) => true,
            Expr::Square(_)
            | Expr::Power(..)
            | Expr::Call(..)
            | Expr::Max(_)
            | Expr::Rest { .. } => false,
        };
        if needs {
            self.sign("(");
            self.write(expr);
            self.sign(")");
        } else {
            self.write(expr);
        }
    }

    /// Whether it is printed with a power of ten.
    fn has_power(&self, number: &Number) -> bool {
        shown(number.value, self.digits).text.contains('×')
    }
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

    /// Rising functions by their ends, the others by their slope, which is at most 1.
    fn range(self, x: Range) -> Range {
        match self {
            Function::Exp | Function::Tanh | Function::Sqrt | Function::Ln => Range {
                low: self.of(x.low),
                high: self.of(x.high),
            },
            Function::Sin | Function::Cos | Function::Abs => {
                let middle = f64::midpoint(x.low, x.high);
                Range::around(self.of(middle), (x.high - x.low) / 2.0)
            }
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
