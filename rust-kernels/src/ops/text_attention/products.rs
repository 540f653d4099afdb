//! The interface to the products of a tile of attention, which are in floats or in 16-bit integers.
use super::tile::{Parts, Rows};
use crate::kernels::float_gemm::FloatRows;
use crate::simd::Simd;

/// The products that attention needs for a tile of rows. A row's result depends only on the row and on the positions of
/// its chunk.
///
/// # Safety
/// For all functions: rows and positions are within their operands.
#[allow(clippy::missing_safety_doc)]
pub trait Products {
    /// Statistics of a row's weights, which are collected while the weights are computed.
    type Measure<S: Simd>: Copy;
    /// Returns the maximum number of vectors of rows in a register tile, at most 4.
    fn vectors<S: Simd>() -> usize;
    /// Stores the query of row r in the layout for products, including the factor `scale`. All other
    /// numbers stay zero.
    unsafe fn query<S: Simd>(s: S, q: *const f32, scale: f32, p: &Parts, to: &Rows, r: usize);
    /// Stores the keys of n positions, from row `start` on, in the layout for products.
    unsafe fn keys<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts);
    unsafe fn values<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts);
    /// Computes the products of V vectors of rows, from row `first` on, with the keys of n positions.
    unsafe fn scores<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize);
    fn measure<S: Simd>(s: S) -> Self::Measure<S>;
    /// Returns the form in which the weights of a vector of rows at position i of the chunk are stored. Calls have
    /// ascending i.
    unsafe fn weigh<S: Simd>(s: S, p: &Parts, i: usize, weight: S::F, to: &mut Self::Measure<S>) -> S::F;
    /// Converts the weights of a vector of rows at n positions to the form that `mix` reads.
    unsafe fn weighed<S: Simd>(s: S, p: &Parts, first: usize, n: usize, by: Self::Measure<S>);
    /// Multiplies the rows' sums by the factors of older sums, then adds the weighted values of n positions.
    unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize);
}
