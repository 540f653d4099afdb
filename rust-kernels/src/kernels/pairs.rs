//! Stores numbers as 16-bit integers with shared scales, so that attention's products are exact integer sums. A 32-bit
//! sum becomes a float before it can overflow. For scores this is after SEGMENT dimensions, because a key's norm times
//! a query's norm stays below 2^31. For values it is after SUMMED positions, because the largest value times the sum of
//! a row's weights stays below 2^31.
use crate::simd::Simd;

/// Number of dimensions whose products are summed as integers. The last segment of a head may be shorter.
pub const SEGMENT: usize = 32;
/// Number of positions whose products are summed as integers.
pub const SUMMED: usize = 16;
/// Upper bound of the norm of a segment's codes, in keys and queries. Its square is below 2^31, with room for rounding.
const NORM: f32 = 46_000.0;
/// The largest 16-bit code.
pub const MOST: f32 = 32_766.0;
/// Upper bound of the sum of SUMMED weight codes. This sum times the largest code of a value is below 2^31.
pub const MOST_WEIGHTS: f32 = 65_500.0;
/// Size of a pair of 16-bit codes in bytes.
pub const PAIR: usize = 4;
/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Returns the index in a vector of code `j` (0 or 1) of a lane. `together` is `Simd::PAIRS_TOGETHER`.
#[inline(always)]
pub const fn place(lanes: usize, together: bool, lane: usize, j: usize) -> usize {
    if together { 2 * lane + j } else { j * lanes + lane }
}

/// Statistics of a head's numbers that determine the scale of their codes.
#[derive(Clone, Copy)]
pub struct Size {
    /// Largest norm of a segment's numbers; NaN if a segment contains NaN.
    pub norm: f32,
    pub top: f32,
}

impl Size {
    /// Returns the sizes of the `n` floats at `x`.
    ///
    /// # Safety
    /// `x` holds `n` floats, a multiple of 16.
    #[inline(always)]
    pub unsafe fn of<S: Simd>(s: S, x: *const f32, n: usize) -> Self {
        unsafe { Self::with(s, n, |d| s.load(x.add(d))) }
    }

    /// Returns the sizes of `n` numbers, a multiple of 16. `vector` returns LANES of them at a time.
    #[inline(always)]
    pub fn with<S: Simd>(s: S, n: usize, vector: impl Fn(usize) -> S::F) -> Self {
        let (mut largest, mut top) = (0f32, s.splat(0.0));
        for start in (0..n).step_by(SEGMENT) {
            let mut squares = s.splat(0.0);
            for d in (start..n.min(start + SEGMENT)).step_by(S::LANES) {
                let x = vector(d);
                squares = s.fma(x, x, squares);
                top = s.max(s.abs(x), top);
            }
            let sum = s.sum(squares);
            largest = larger(largest, sum);
        }
        Self { norm: largest.sqrt(), top: s.largest(top) }
    }

    /// Returns the scale for a key's or a query's codes; NaN if the key or query contains NaN.
    pub fn scale(self) -> f32 {
        larger(self.norm / NORM, self.top / MOST)
    }
}

/// Returns the larger number, or NaN if one is NaN.
pub fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// Returns the factor that turns numbers into codes; 0 if the scale is too small to divide by.
pub fn inverse(scale: f32) -> f32 {
    if scale < f32::MIN_POSITIVE { 0.0 } else { 1.0 / scale }
}

/// Passes the code of each of `n` numbers to `put`. `n` is a multiple of 16; `vector` returns LANES numbers at a time.
///
/// # Safety
/// No number is larger than MOST times the scale.
#[inline(always)]
pub unsafe fn codes<S: Simd>(
    s: S,
    n: usize,
    scale: f32,
    vector: impl Fn(usize) -> S::F,
    mut put: impl FnMut(usize, i16),
) {
    let inverse = s.splat(inverse(scale));
    let mut codes = [0i16; 16];
    for d in (0..n).step_by(S::LANES) {
        unsafe { s.store_i16(codes.as_mut_ptr(), s.mul(vector(d), inverse)) };
        for (i, code) in codes.iter().enumerate().take(S::LANES) {
            put(d + i, *code);
        }
    }
}

/// Writes the codes of the `n` floats at `x` as pairs of adjacent codes. The pairs are `step` codes apart.
///
/// # Safety
/// `x` holds `n` floats, a multiple of 16, and none is larger than MOST times the scale.
#[inline(always)]
pub unsafe fn write_pairs<S: Simd>(s: S, x: *const f32, n: usize, scale: f32, to: *mut i16, step: usize) {
    let inverse = s.splat(inverse(scale));
    let mut codes = [0i16; 16];
    for d in (0..n).step_by(S::LANES) {
        unsafe {
            s.store_i16(codes.as_mut_ptr(), s.mul(s.load(x.add(d)), inverse));
            for j in (0..S::LANES).step_by(2) {
                to.add((d + j) / 2 * step).cast::<[i16; 2]>().write_unaligned([codes[j], codes[j + 1]]);
            }
        }
    }
}

/// Products of R rows with V vectors, both made of pairs of 16-bit codes. Rows are `row` bytes apart, and a row's pairs
/// are `pair` bytes apart. Vectors are `next` bytes apart, and a vector's pairs are adjacent. The data to prefetch are
/// `ahead` bytes behind the vectors.
pub struct Pairs {
    pub x: *const i16,
    pub row: usize,
    pub pair: usize,
    pub w: *const u8,
    pub next: usize,
    pub pairs: usize,
    pub ahead: isize,
}

impl Pairs {
    /// Sums the products of each lane as integers, then adds the sums to `totals`.
    ///
    /// # Safety
    /// All pairs exist, and their sums fit in 32 bits.
    #[inline(always)]
    pub unsafe fn add<S: Simd, const R: usize, const V: usize>(&self, s: S, totals: &mut [[S::F; V]; R]) {
        unsafe {
            let mut sums = [[s.i_splat(0); V]; R];
            let (mut x, mut w) = (self.x, self.w);
            let line = const { LINE.div_ceil(PAIR * S::LANES) };
            for _ in 0..self.pairs / line {
                for v in 0..V {
                    s.prefetch_l2(w.wrapping_add(v * self.next).wrapping_offset(self.ahead));
                }
                for _ in 0..line {
                    self.add_one(s, x, w, &mut sums);
                    (x, w) = (x.byte_add(self.pair), w.add(PAIR * S::LANES));
                }
            }
            for _ in 0..self.pairs % line {
                self.add_one(s, x, w, &mut sums);
                (x, w) = (x.byte_add(self.pair), w.add(PAIR * S::LANES));
            }
            for r in 0..R {
                for v in 0..V {
                    totals[r][v] = s.add(totals[r][v], s.i_to_f(sums[r][v]));
                }
            }
        }
    }

    /// Adds the products of one pair of each row (at `x`) with one pair of each vector (at `w`).
    #[inline(always)]
    unsafe fn add_one<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        x: *const i16,
        w: *const u8,
        sums: &mut [[S::I; V]; R],
    ) {
        unsafe {
            for v in 0..V {
                let codes = s.b_load(w.add(v * self.next));
                for (r, sums) in sums.iter_mut().enumerate() {
                    sums[v] = s.dot_pair(sums[v], codes, x.byte_add(r * self.row));
                }
            }
        }
    }
}
