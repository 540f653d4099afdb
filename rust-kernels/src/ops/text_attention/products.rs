//! How a tile multiplies: in floats, or in 16-bit integers.
use super::tile::{Parts, Rows};
use crate::kernels::float_gemm::FloatRows;
use crate::simd::Simd;

/// What is computed for a row depends on nothing but the row, and the positions that it goes through together.
///
/// # Safety
/// Of all functions: rows and positions lie in what they are said to be of, `head_dim` is a multiple of 16.
#[allow(clippy::missing_safety_doc)]
pub trait Products {
    /// What is found out about weights while they are computed.
    type Measure<S: Simd>: Copy;
    /// Most vectors of rows in a register tile: 4 at most.
    fn vectors<S: Simd>() -> usize;
    /// Lays out the query of row r, a head's floats, for products that are `scale` times as large. What it does not write is zeros.
    unsafe fn query<S: Simd>(s: S, q: *const f32, scale: f32, p: &Parts, to: &Rows, r: usize);
    /// Lays out n positions' keys, from row `start` on.
    unsafe fn keys<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts);
    unsafe fn values<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts);
    /// Products of V vectors of rows, from row `first` on, with the keys of n positions.
    unsafe fn scores<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize);
    fn measure<S: Simd>(s: S) -> Self::Measure<S>;
    /// What is kept of a vector of rows' weights at position i of the chunk; positions ascend.
    unsafe fn weigh<S: Simd>(s: S, p: &Parts, i: usize, weight: S::F, to: &mut Self::Measure<S>) -> S::F;
    /// Makes what `mix` reads of a vector of rows' weights at n positions.
    unsafe fn weighed<S: Simd>(s: S, p: &Parts, first: usize, n: usize, by: Self::Measure<S>);
    /// Adds to the rows' sums, times their factors, n positions' values, weighed.
    unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize);
}
