//! Memory that is needed soon, asked for a line at a time between other work: a burst of requests
//! would wait for itself.

use super::prefetch_line;

/// Bytes of a line.
const LINE: usize = 64;

/// Parts that [`Asks`] holds at most.
const PARTS: usize = 6;

/// Lines of memory to ask for. They may be anywhere, since asking never faults, so addresses are
/// numbers here.
#[derive(Clone, Copy, Default)]
pub struct Asks {
    parts: [Lines; PARTS],
    /// How many parts there are, and how many of them are done.
    count: usize,
    done: usize,
}

/// Some rows of lines.
#[derive(Clone, Copy, Default)]
struct Lines {
    next: usize,
    left: usize,
    /// Lines of a row, and which of them is next.
    row: usize,
    column: usize,
    /// From the end of a row to the next, in bytes.
    gap: usize,
}

impl Lines {
    #[inline(always)]
    fn skip(&mut self, lines: usize) {
        let column = self.column + lines;
        let rows = column / self.row;
        self.next = self
            .next
            .wrapping_add(lines * LINE)
            .wrapping_add(self.gap.wrapping_mul(rows));
        self.column = column - rows * self.row;
        self.left -= lines;
    }

    /// Asks for the next lines of a row, which are there.
    #[inline(always)]
    fn ask(&mut self, lines: usize) {
        for line in 0..lines {
            let at = std::ptr::without_provenance(self.next.wrapping_add(line * LINE));
            prefetch_line(at);
        }
        self.next = self.next.wrapping_add(lines * LINE);
        self.column += lines;
        self.left -= lines;
        if self.column == self.row {
            self.column = 0;
            self.next = self.next.wrapping_add(self.gap);
        }
    }
}

impl Asks {
    /// Adds `count` rows of `width` numbers, `stride` numbers apart. What is more than six parts
    /// is left out.
    pub fn add<T>(&mut self, first: *const T, width: usize, count: usize, stride: isize) {
        let row = width * size_of::<T>();
        let stride = stride.wrapping_mul(size_of::<T>() as isize);
        // Rows without a gap are one.
        let flat = stride.cast_unsigned() == row;
        let (bytes, count) = if flat { (row * count, 1) } else { (row, count) };
        if let Some(part) = self.parts.get_mut(self.count)
            && bytes > 0
            && count > 0
        {
            let row = bytes.div_ceil(LINE);
            *part = Lines {
                next: first.addr(),
                left: row * count,
                row,
                column: 0,
                gap: stride.cast_unsigned().wrapping_sub(row * LINE),
            };
            self.count += 1;
        }
    }

    /// How many lines there are.
    pub fn lines(&self) -> usize {
        let parts = &self.parts[self.done..self.count];
        parts.iter().map(|part| part.left).sum()
    }

    /// Moves up to so many lines to others, as far as those have room.
    pub fn hand_over(&mut self, mut lines: usize, to: &mut Asks) {
        while let Some(part) = self.parts[..self.count].get_mut(self.done)
            && let Some(place) = to.parts.get_mut(to.count)
            && lines > 0
        {
            let left = part.left.min(lines);
            *place = Lines { left, ..*part };
            to.count += 1;
            part.skip(left);
            lines -= left;
            self.done += usize::from(part.left == 0);
        }
    }

    /// Asks for up to so many lines.
    #[inline(always)]
    pub fn ask(&mut self, mut lines: usize) {
        while lines > 0 {
            let Some(part) = self.parts[..self.count].get_mut(self.done) else {
                return;
            };
            let now = lines.min(part.row - part.column).min(part.left);
            part.ask(now);
            lines -= now;
            self.done += usize::from(part.left == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands all over in portions, asks for those one by one, and says which lines these were.
    fn asked(asks: &mut Asks, portion: usize) -> Vec<usize> {
        let mut lines = Vec::new();
        while asks.lines() > 0 {
            let mut now = Asks::default();
            asks.hand_over(portion, &mut now);
            assert!((1..=portion).contains(&now.lines()));
            while now.lines() > 0 {
                lines.push(now.parts[now.done].next);
                now.ask(1);
            }
        }
        lines
    }

    #[test]
    fn every_line_is_asked_for_once_however_it_is_cut() {
        let numbers = [0_f32; 4096];
        let first = numbers.as_ptr();
        for portion in [1, 2, 3, 5, 7, 100] {
            let mut asks = Asks::default();
            asks.add(first, 40, 3, 100); // 160 bytes of every 400: 3 lines
            asks.add(first, 0, 3, 100);
            asks.add(first, 32, 4, 32); // rows without a gap: 8 lines
            asks.add(first, 16, 2, -16);
            assert_eq!(asks.lines(), 19);
            let mut expected = Vec::new();
            for row in 0..3 {
                expected.extend((0..3).map(|line| row * 400 + line * LINE));
            }
            expected.extend((0..8).map(|line| line * LINE));
            expected.extend([0, 0_usize.wrapping_sub(LINE)]);
            let found = asked(&mut asks, portion);
            let found = found.iter().map(|at| at.wrapping_sub(first.addr()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "portions of {portion}");
        }
    }

    #[test]
    fn several_lines_at_once_are_as_many() {
        let numbers = [0_u8; 1000];
        for at_once in [1, 2, 4, 9, usize::MAX] {
            let mut asks = Asks::default();
            asks.add(numbers.as_ptr(), 130, 3, 200);
            asks.add(numbers.as_ptr(), 64, 1, 0);
            for left in (0..10_usize).rev().step_by(at_once.min(10)) {
                assert_eq!(asks.lines(), left + 1);
                asks.ask(at_once);
            }
            assert_eq!(asks.lines(), 0, "{at_once} at once");
        }
    }
}
