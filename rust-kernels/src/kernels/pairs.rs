//! Numbers as 16-bit integers with a scale for as many as share one, so that products of attention are exact sums of integer
//! products. Sums of so many products that fit 32 bits become floats: of SEGMENT dimensions, of which a key's norm times a query's
//! stays below 2^31, and of SUMMED positions, of which the largest value times a row's weights does.
use crate::simd::Simd;

/// Dimensions whose products are added up as integers; of a head the last may be fewer.
pub const SEGMENT: usize = 32;
/// Positions whose products are added up as integers.
pub const SUMMED: usize = 16;
/// What the codes of a key's or a query's segment have as their norm, at most: its square is below 2^31, with room for rounding.
const NORM: f32 = 46_000.0;
/// The largest code.
pub const MOST: f32 = 32_766.0;
/// What a row's codes of SUMMED weights add up to at most: times the largest code of a value it is below 2^31.
pub const MOST_WEIGHTS: f32 = 65_500.0;
/// Bytes of two codes.
pub const PAIR: usize = 4;
/// Of a cache, in bytes.
const LINE: usize = 64;

/// Where code `j` of two of a lane stands in its vector; `together` is `Simd::PAIRS_TOGETHER`.
#[inline(always)]
pub const fn place(lanes: usize, together: bool, lane: usize, j: usize) -> usize {
    if together { 2 * lane + j } else { j * lanes + lane }
}

/// What a head's codes are measured by.
#[derive(Clone, Copy)]
pub struct Size {
    /// Of the segment whose is largest; not a number where one's is not.
    pub norm: f32,
    pub top: f32,
}

impl Size {
    /// Of the `n` floats at `x`.
    ///
    /// # Safety
    /// They are there, a multiple of 16.
    #[inline(always)]
    pub unsafe fn of<S: Simd>(s: S, x: *const f32, n: usize) -> Self {
        unsafe { Self::with(s, n, |d| s.load(x.add(d))) }
    }

    /// Of `n` numbers, a multiple of 16, that come LANES at a time.
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

    /// What a key's or a query's codes stand for; not a number where that is what it has.
    pub fn scale(self) -> f32 {
        larger(self.norm / NORM, self.top / MOST)
    }
}

/// The larger; not a number where either is not.
pub fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// What numbers are multiplied by to be codes; 0 where the scale is too small to be divided by.
pub fn inverse(scale: f32) -> f32 {
    if scale < f32::MIN_POSITIVE { 0.0 } else { 1.0 / scale }
}

/// Hands on the code of each of `n` numbers, a multiple of 16, that come LANES at a time.
///
/// # Safety
/// None is larger than MOST times the scale.
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

/// Writes the codes of the `n` floats at `x`: two next to each other, and such pairs `step` codes apart.
///
/// # Safety
/// They are there, a multiple of 16, and none is larger than MOST times the scale.
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

/// Products of R rows of pairs with V vectors of pairs. Rows lie `row` bytes apart and the pairs of
/// one `pair` bytes; vectors lie `next` bytes apart, and each one's pairs follow each other. What will be wanted next lies `ahead` bytes
/// further on.
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
    /// Adds them to `totals`, each lane's as one integer.
    ///
    /// # Safety
    /// All pairs are there, and their sums fit 32 bits.
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

    /// Adds the products of one pair of each row, at `x`, with one of each vector, at `w`.
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
