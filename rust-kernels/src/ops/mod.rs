//! The kernels, each written once over `Simd`.
pub mod attention;
pub mod candidates;
pub mod delta_rule;
pub mod embed;
pub mod float_gemm;
pub mod gemm;
pub mod kv;
pub mod norm;
pub mod outer_product;
pub mod peaks;
pub mod quantize;
pub mod rope;
pub mod short_conv;
pub mod swiglu;
pub mod thin_gemm;
pub mod wide_gemm;
