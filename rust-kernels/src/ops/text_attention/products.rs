//! The products of a tile: in floats, or in 16-bit integers.
use super::tile::{Parts, Rows};
use crate::kernels::float_gemm::FloatRows;
use crate::simd::Simd;

/// Products for rows. A row's result depends only on the row and on the positions of its chunk.
///
/// # Safety
/// For all functions: rows and positions are within their operands, and `head_dim` is a multiple of 16.
#[allow(clippy::missing_safety_doc)]
pub trait Products {
    /// Statistics of weights, collected while they are computed.
    type Measure<S: Simd>: Copy;
    /// Maximum vectors of rows in a register tile; at most 4.
    fn vectors<S: Simd>() -> usize;
    /// Lays out the query of row r, the floats of a head, for products times `scale`. The rest stays zero.
    unsafe fn query<S: Simd>(s: S, q: *const f32, scale: f32, p: &Parts, to: &Rows, r: usize);
    /// Lays out the keys of n positions from row `start` on.
    unsafe fn keys<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts);
    unsafe fn values<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts);
    /// Products of V vectors of rows, from row `first` on, with the keys of n positions.
    unsafe fn scores<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize);
    fn measure<S: Simd>(s: S) -> Self::Measure<S>;
    /// The stored weight of a vector of rows at position i of the chunk. Positions ascend.
    unsafe fn weigh<S: Simd>(s: S, p: &Parts, i: usize, weight: S::F, to: &mut Self::Measure<S>) -> S::F;
    /// Converts a vector of rows' weights at n positions for `mix`.
    unsafe fn weighed<S: Simd>(s: S, p: &Parts, first: usize, n: usize, by: Self::Measure<S>);
    /// Multiplies the rows' sums by their factors and adds the weighted values of n positions.
    unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize);
}
