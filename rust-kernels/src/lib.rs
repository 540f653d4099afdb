//! The native kernels of compy: weights packed into row panels, kernels per instruction set, and the executor that runs
//! a plan. TypeScript makes every decision; this crate only runs a list of ops.
#![deny(unsafe_op_in_unsafe_fn)]
// Kernels index arrays of registers by constants. Iterators would be harder to read and sometimes cost registers.
#![allow(clippy::needless_range_loop)]
// The WebAssembly build uses nightly features anyway (tools/build_wasm.ts).
#![cfg_attr(target_arch = "wasm32", feature(asm_experimental_arch))]

pub mod cache;
mod clock;
mod cores;
pub mod error;
pub mod executor;
pub mod ffi;
pub mod formats;
pub mod half;
pub mod kernels;
pub mod limits;
pub mod masks;
pub mod memory;
pub mod model;
pub mod ops;
pub mod pool;
pub mod program;
pub mod simd;
pub mod step;
mod sync;
pub mod turns;
#[cfg(target_arch = "wasm32")]
pub mod wasm;
pub mod weights;
pub mod words;
