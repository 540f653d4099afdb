use super::Simd;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Cache lines that a kernel will read next, from several panels in turn. The kernel prefetches them one by one, spread
/// evenly over the computation before that. A burst would fill the few buffers of the first-level cache for misses, and
/// all loads would wait (docs/lab/2026-11.md, T6).
#[derive(Clone, Copy)]
pub struct Ahead {
    base: *const u8,
    /// Distance in bytes from a line of one panel to the same line of the next panel.
    panel: usize,
    /// Indices of the first line, and of the line after the last.
    from: usize,
    to: usize,
    /// Whether to prefetch only into the second-level cache.
    l2: bool,
}

impl Ahead {
    pub const NOTHING: Self = Self { base: std::ptr::null(), panel: 0, from: 0, to: 0, l2: false };

    /// Returns the lines of the first `bytes` bytes at `base` in each of P panels, which are `panel` bytes apart.
    #[inline(always)]
    pub fn new<const P: usize>(base: *const u8, panel: usize, bytes: usize, l2: bool) -> Self {
        Self { base, panel, from: 0, to: bytes.div_ceil(64) * P, l2 }
    }

    /// Returns the same lines, but to be prefetched into the first-level cache too.
    #[inline(always)]
    pub fn into_l1(self) -> Self {
        Self { l2: false, ..self }
    }

    /// Splits the lines into n almost equal parts and returns the parts in `parts`.
    #[inline(always)]
    pub fn parts(self, parts: Range<usize>, n: usize) -> Self {
        let lines = self.to - self.from;
        Self { from: self.from + parts.start * lines / n, to: self.from + parts.end * lines / n, ..self }
    }

    #[inline(always)]
    pub fn part(self, i: usize, n: usize) -> Self {
        self.parts(i..i + 1, n)
    }

    /// Prefetches part i of n almost equal parts of the lines. They are in P panels.
    #[inline(always)]
    pub fn prefetch<S: Simd, const P: usize>(self, s: S, i: usize, n: usize) {
        let part = self.part(i, n);
        for line in part.from..part.to {
            self.prefetch_line::<S, P>(s, line);
        }
    }

    #[inline(always)]
    fn prefetch_line<S: Simd, const P: usize>(self, s: S, line: usize) {
        let line = self.base.wrapping_add(line % P * self.panel + line / P * 64);
        // The fences keep each prefetch in its place. Without them the compiler would move all prefetches behind the
        // sums.
        compiler_fence(Ordering::SeqCst);
        if self.l2 {
            s.prefetch_l2(line)
        } else {
            s.prefetch(line)
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// Spreads the lines evenly over `steps` steps. `steps` is at least one.
    #[inline(always)]
    pub fn over(self, steps: usize) -> Pace {
        let (due, lines) = (self.from << FRACTION_BITS, (self.to - self.from) << FRACTION_BITS);
        Pace { ahead: self, due, a_step: lines.div_ceil(steps) }
    }
}

const FRACTION_BITS: u32 = 16;

/// Prefetches lines evenly over some steps, without a division in each step.
pub struct Pace {
    ahead: Ahead,
    /// Number of lines that are due by now, and lines per step. Both have FRACTION_BITS fractional bits.
    due: usize,
    a_step: usize,
}

impl Pace {
    /// Prefetches the lines of one step, which are in P panels.
    #[inline(always)]
    pub fn step<S: Simd, const P: usize>(&mut self, s: S) {
        self.due += self.a_step;
        let to = self.ahead.to.min(self.due >> FRACTION_BITS);
        while self.ahead.from < to {
            self.ahead.prefetch_line::<S, P>(s, self.ahead.from);
            self.ahead.from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::scalar::Scalar;

    #[test]
    fn pace_prefetches_all_lines_evenly_over_the_steps() {
        for (lines, steps) in [(68, 32), (136, 512), (0, 4), (7, 3), (1, 1)] {
            let mut pace = Ahead::new::<1>(std::ptr::null(), 0, 64 * lines, true).over(steps);
            for i in 1..=steps {
                pace.step::<_, 1>(Scalar(()));
                assert!(pace.ahead.from.abs_diff(i * lines / steps) <= 1, "{lines} lines, {i} of {steps} steps");
            }
            assert_eq!(pace.ahead.from, lines);
        }
    }

    #[test]
    fn parts_cover_all_lines_once_and_in_order() {
        let base = std::ptr::null::<u8>().wrapping_add(1 << 20);
        for (bytes, n) in [(512, 16), (4352, 16), (544, 4), (0, 4), (64, 1)] {
            let ahead = Ahead::new::<2>(base, 1 << 12, bytes, true);
            let parts: Vec<_> = (0..n).map(|i| ahead.part(i, n)).collect();
            let lines: Vec<_> = parts.iter().flat_map(|part| part.from..part.to).collect();
            assert_eq!(lines, (0..2 * bytes.div_ceil(64)).collect::<Vec<_>>());
            let [most, fewest] = [parts.iter().map(|p| p.to - p.from).max(), parts.iter().map(|p| p.to - p.from).min()];
            assert!(most <= fewest.map(|n| n + 1), "{bytes} bytes in {n} parts");
        }
    }
}
