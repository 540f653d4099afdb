//! What several ops compute with, each written once over `Simd`: products, norms, rows in 8 bits, the KV cache's types.
pub mod activations;
#[cfg(target_arch = "x86_64")]
pub mod amx_gemm;
pub mod dot;
pub mod float_gemm;
pub mod gemm;
pub mod kv;
pub mod norm;
pub mod pairs;
pub mod panel_row;
pub mod peaks;
pub mod quant_rows;
pub mod softplus;
pub mod thin_gemm;
pub mod tiles;
pub mod wide_gemm;
