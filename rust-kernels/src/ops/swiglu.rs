//! SwiGLU: silu(gate) * up.
use super::norm::Outputs;
use super::quantize::quantize_block;
use super::short_conv::silu;
use crate::formats::BLOCK;
use crate::simd::{Kernel, Simd};

/// Columns `start..start + n` of one row: y = gate / (1 + e^-gate) * up. `gate` is overwritten.
///
/// # Safety
/// `gate` and `up` hold `n` floats, rounded up to whole vectors; with a quantised output `start` and `n` are
/// multiples of 32; the outputs have the row.
pub struct SwigluRow<'a> {
    pub gate: *mut f32,
    pub up: *const f32,
    pub n: usize,
    pub out: &'a Outputs,
    pub row: usize,
    pub start: usize,
}

impl Kernel for SwigluRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { gate, up, n, out, row, start } = self;
        unsafe {
            for i in (0..n).step_by(S::LANES) {
                S::store(gate.add(i), S::mul(silu::<S>(S::load(gate.add(i))), S::load(up.add(i))));
            }
            if !out.float.is_null() {
                std::ptr::copy_nonoverlapping(gate, out.float.add(row * out.float_stride + start), n);
            }
            if let Some(quant) = &out.quant {
                for b in 0..n / BLOCK {
                    quantize_block::<S>(gate.add(b * BLOCK), quant, row, start / BLOCK + b);
                }
            }
        }
    }
}
