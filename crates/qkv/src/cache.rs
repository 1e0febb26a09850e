//! Keys and values that grow a token at a time.

use crate::attention::Inputs;
use crate::error::{Error, Result};
use crate::kernel::Pages;
use crate::view::{Element, View};

/// A cache of keys and values that appends in place.
///
/// Keys are `[batch, kv_heads, len, head_dim]`, values `[batch, kv_heads, len, value_dim]`, each
/// head with room to grow, so that appending a token copies that token only; when the room is used
/// up it doubles. From 8 MiB on keys and values lie on large pages where Linux has them, which
/// makes decoding faster by a tenth; room that no token has used yet takes no memory.
///
/// ```
/// use qkv::{Attention, Cache, Causal, View, forward};
/// let mut cache = Cache::new(1, 1, 2, 1);
/// let (k, v) = ([1.0_f32, 0.0], [3.0_f32]);
/// for _ in 0..3 {
///     cache.append(View::new(&k, &[1, 2])?, View::new(&v, &[1, 1])?)?;
/// }
/// let q = [1.0_f32, 0.0];
/// let attention = Attention { causal: Some(Causal::BottomRight), ..Attention::default() };
/// let result = forward(&attention, &cache.inputs(View::new(&q, &[1, 2])?)?)?;
/// assert_eq!((cache.len(), result.output.data()), (3, &[3.0][..]));
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache<T: Element> {
    batch: usize,
    kv_heads: usize,
    len: usize,
    capacity: usize,
    k: Half<T>,
    v: Half<T>,
}

/// The keys or the values: `[batch·kv_heads, capacity, width]`.
#[derive(Clone, Debug)]
struct Half<T: Element> {
    width: usize,
    data: Pages<T>,
}

impl<T: Element> Cache<T> {
    /// An empty cache.
    pub fn new(batch: usize, kv_heads: usize, head_dim: usize, value_dim: usize) -> Self {
        Cache {
            batch,
            kv_heads,
            len: 0,
            capacity: 0,
            k: Half {
                width: head_dim,
                data: Pages::zeros(0),
            },
            v: Half {
                width: value_dim,
                data: Pages::zeros(0),
            },
        }
    }

    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for at least so many tokens in all.
    pub fn reserve(&mut self, tokens: usize) {
        if tokens > self.capacity {
            for half in [&mut self.k, &mut self.v] {
                half.grow(self.batch * self.kv_heads, self.len, self.capacity, tokens);
            }
            self.capacity = tokens;
        }
    }

    /// Appends keys `[batch, kv_heads, tokens, head_dim]` and values `[batch, kv_heads, tokens,
    /// value_dim]` of any strides.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where they fit neither the cache nor each other; the cache is then as
    /// it was.
    pub fn append(&mut self, k: View<'_, T>, v: View<'_, T>) -> Result<()> {
        let tokens = k.shape()[2];
        let [batch, kv_heads] = [self.batch, self.kv_heads];
        fits("k", k.shape(), [batch, kv_heads, tokens, self.k.width])?;
        fits("v", v.shape(), [batch, kv_heads, tokens, self.v.width])?;
        let needed = self.len + tokens;
        if needed > self.capacity {
            self.reserve(needed.max(2 * self.capacity).max(16));
        }
        for (half, new) in [(&mut self.k, k), (&mut self.v, v)] {
            half.write(new, self.len, self.capacity);
        }
        self.len = needed;
        Ok(())
    }

    /// Forgets all but the first `tokens`, for example after rejected guesses. The room stays.
    pub fn truncate(&mut self, tokens: usize) {
        self.len = self.len.min(tokens);
    }

    /// The keys, `[batch, kv_heads, len, head_dim]`.
    ///
    /// # Errors
    /// None as long as the cache is whole; the view's own checks are kept.
    pub fn k(&self) -> Result<View<'_, T>> {
        self.view(&self.k)
    }

    /// The values, `[batch, kv_heads, len, value_dim]`.
    ///
    /// # Errors
    /// As [`Cache::k`].
    pub fn v(&self) -> Result<View<'_, T>> {
        self.view(&self.v)
    }

    fn view<'a>(&self, half: &'a Half<T>) -> Result<View<'a, T>> {
        let head = (self.capacity * half.width) as isize;
        View::strided(
            &half.data,
            0,
            [self.batch, self.kv_heads, self.len, half.width],
            [self.kv_heads as isize * head, head, half.width as isize, 1],
        )
    }

    /// Queries `[batch, heads, queries, head_dim]` against everything in the cache.
    ///
    /// # Errors
    /// Those of [`Inputs::new`].
    pub fn inputs<'a>(&'a self, q: View<'a, T>) -> Result<Inputs<'a, T>> {
        Inputs::new(q, self.k()?, self.v()?)
    }
}

impl<T: Element> Half<T> {
    fn grow(&mut self, heads: usize, len: usize, old: usize, new: usize) {
        let mut data = Pages::zeros(heads * new * self.width);
        for head in 0..heads {
            let kept = &self.data[head * old * self.width..][..len * self.width];
            data[head * new * self.width..][..kept.len()].copy_from_slice(kept);
        }
        self.data = data;
    }

    fn write(&mut self, new: View<'_, T>, len: usize, capacity: usize) {
        let [batch, heads, tokens, width] = new.shape();
        let (from, offset) = new.raw();
        let strides = new.strides();
        for b in 0..batch {
            for h in 0..heads {
                for token in 0..tokens {
                    let at = ((b * heads + h) * capacity + len + token) * width;
                    let to = &mut self.data[at..at + width];
                    let row = offset as isize
                        + b as isize * strides[0]
                        + h as isize * strides[1]
                        + token as isize * strides[2];
                    if strides[3] == 1 {
                        to.copy_from_slice(&from[row as usize..][..width]);
                    } else {
                        for (c, to) in to.iter_mut().enumerate() {
                            *to = from[(row + c as isize * strides[3]) as usize];
                        }
                    }
                }
            }
        }
    }
}

fn fits(argument: &'static str, found: [usize; 4], needed: [usize; 4]) -> Result<()> {
    let axes = ["batch", "heads", "tokens", "columns"];
    for (axis, (found_size, needed_size)) in axes.into_iter().zip(found.into_iter().zip(needed)) {
        if found_size != needed_size {
            return Err(Error::Mismatch {
                axis,
                left: argument,
                left_size: found_size,
                left_shape: found.into(),
                right: "the cache",
                right_size: needed_size,
                right_shape: needed.into(),
                remedy: "what is appended has the cache's batch, heads and widths, and as many \
                         keys as values",
            });
        }
    }
    Ok(())
}
