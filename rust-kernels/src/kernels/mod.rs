//! Kernels that several ops share, written once for all instruction sets (`Simd`): products, norms, 8-bit rows, types
//! of KV cache.
pub mod activations;
#[cfg(target_arch = "x86_64")]
pub mod amx_gemm;
pub mod dot;
mod dot_bits;
pub mod float_gemm;
pub mod gemm;
pub mod kv;
pub mod norm;
pub mod pair_gemm;
pub mod pairs;
pub mod panel_row;
pub mod peaks;
pub mod quant_rows;
pub mod scaling;
pub mod softplus;
pub mod thin_gemm;
pub mod tiles;
pub mod wide_gemm;
