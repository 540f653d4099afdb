//! The outer-product kernel of attention: rows of floats times a matrix that is read once, row by row, with its columns
//! in the lanes.
use super::kv::FloatMatrix;
use crate::simd::Simd;

/// What the right-hand side of `outer_product` is made of.
pub trait Element: Copy {
    /// LANES elements as floats.
    ///
    /// # Safety
    /// They lie there.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F;
    /// Whether the elements come from memory, in the order in which they are used.
    const STREAMED: bool;
}

impl Element for u16 {
    const STREAMED: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u16) -> S::F {
        unsafe { s.load_f16(p) }
    }
}

impl Element for f32 {
    const STREAMED: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32) -> S::F {
        unsafe { s.load(p) }
    }
}

/// The right-hand side of `outer_product`: `row` elements from k to k + 1, columns in groups of `group` that lie
/// `next_group` elements apart. What will be wanted after it, laid out alike, lies `ahead` bytes on.
pub struct Rhs<E> {
    pub base: *const E,
    pub row: usize,
    pub group: usize,
    pub next_group: usize,
    pub ahead: isize,
}

impl<E> Rhs<E> {
    /// Column `col` of row 0. Safety: within the matrix.
    #[inline(always)]
    unsafe fn column(&self, col: usize) -> *const E {
        unsafe { self.base.add(col / self.group * self.next_group + col % self.group) }
    }
}

impl<E: Element> Rhs<E> {
    /// The same as floats, in `wide`.
    ///
    /// # Safety
    /// There are `n` elements, a multiple of 16, here and room for them there.
    #[inline(always)]
    pub unsafe fn widen<S: Simd>(&self, s: S, n: usize, wide: *mut f32) -> Rhs<f32> {
        for i in (0..n).step_by(S::LANES) {
            unsafe { s.store(wide.add(i), E::load(s, self.base.add(i))) }
        }
        Rhs { base: wide, row: self.row, group: self.group, next_group: self.next_group, ahead: 0 }
    }
}

/// c[r][0..n] (+)= sum over k of lhs[r][k] * rhs[k][0..n].
///
/// # Safety
/// All rows of `lhs` have `depth` floats, `rhs` as many rows of `n` columns, a multiple of 16, `c` a row for each of
/// `lhs`.
#[inline(always)]
pub unsafe fn outer_product<S: Simd, E: Element>(
    s: S,
    lhs: &[*const f32],
    depth: usize,
    rhs: &Rhs<E>,
    n: usize,
    c: FloatMatrix,
    add: bool,
) {
    unsafe {
        let mut col = 0;
        while col < n {
            // The last columns of a head_dim that is no multiple of two vectors go one vector at a time.
            let two = n - col >= 2 * S::LANES;
            let at = [rhs.column(col), rhs.column(if two { col + S::LANES } else { col })];
            let columns = Columns { at, row: rhs.row, ahead: rhs.ahead };
            let mut r = 0;
            while r < lhs.len() {
                let left = lhs.len() - r;
                let rows = if left >= 8 && S::LANES >= 16 {
                    8
                } else if left >= 4 {
                    4
                } else if left >= 2 {
                    2
                } else {
                    1
                };
                let (l, out) = (&lhs[r..], FloatMatrix { at: c.row(r).add(col), ..c });
                match (rows, two) {
                    (8, true) => block::<S, _, 8, 2>(s, l, depth, &columns, out, add),
                    (4, true) => block::<S, _, 4, 2>(s, l, depth, &columns, out, add),
                    (2, true) => block::<S, _, 2, 2>(s, l, depth, &columns, out, add),
                    (_, true) => block::<S, _, 1, 2>(s, l, depth, &columns, out, add),
                    (8, false) => block::<S, _, 8, 1>(s, l, depth, &columns, out, add),
                    (4, false) => block::<S, _, 4, 1>(s, l, depth, &columns, out, add),
                    (2, false) => block::<S, _, 2, 1>(s, l, depth, &columns, out, add),
                    (_, false) => block::<S, _, 1, 1>(s, l, depth, &columns, out, add),
                }
                r += rows;
            }
            col += if two { 2 * S::LANES } else { S::LANES };
        }
    }
}

/// Two vectors of columns of a right-hand side: their places in row 0, elements to the next row, bytes to what follows.
struct Columns<E> {
    at: [*const E; 2],
    row: usize,
    ahead: isize,
}

/// R rows times V <= 2 vectors of `outer_product`.
#[inline(always)]
unsafe fn block<S: Simd, E: Element, const R: usize, const V: usize>(
    s: S,
    lhs: &[*const f32],
    depth: usize,
    rhs: &Columns<E>,
    c: FloatMatrix,
    add: bool,
) {
    unsafe {
        let mut acc = [[s.splat(0.0); V]; R];
        if add {
            for r in 0..R {
                for v in 0..V {
                    acc[r][v] = s.load(c.row(r).add(v * S::LANES));
                }
            }
        }
        let lhs: [*const f32; R] = std::array::from_fn(|r| lhs[r]);
        let mut at = rhs.at;
        for k in 0..depth {
            let mut w = [s.splat(0.0); V];
            for v in 0..V {
                if E::STREAMED {
                    s.prefetch_l2(at[v].wrapping_byte_offset(rhs.ahead).cast());
                }
                w[v] = E::load(s, at[v]);
                at[v] = at[v].wrapping_add(rhs.row);
            }
            for r in 0..R {
                let x = s.splat(*lhs[r].add(k));
                for v in 0..V {
                    acc[r][v] = s.fma(x, w[v], acc[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                s.store(c.row(r).add(v * S::LANES), acc[r][v]);
            }
        }
    }
}
