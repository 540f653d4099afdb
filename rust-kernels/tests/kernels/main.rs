//! Property tests of the kernels, for every instruction set that this CPU has.
//!
//! A case is one call of a kernel on seeded random input; its whole result is checked. All suites together have over
//! 100,000 cases per instruction set. `cargo test --release -- --nocapture` prints the counts. `KERNEL_CASES` is the
//! percentage of cases to run: by default 25, in debug builds 2.
#![cfg(unix)]
// Kernels take raw pointers into buffers that the tests size by hand. There, indices show offsets more clearly than
// iterators.
#![allow(clippy::needless_range_loop)]

mod attention;
mod candidates;
mod choose;
mod delta;
mod dots;
mod experts;
mod fine;
mod gated_conv;
mod gemm;
mod kda;
mod kv;
mod mamba;
mod panels;
mod quantize;
mod residuals;
mod rope;
mod rows;
mod sources;
mod streams;
mod support;
mod text;
mod vectors;
