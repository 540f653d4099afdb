//! Extracts rows of a matrix from its panels.
use crate::formats::{BLOCK, BlockFormat, FloatFormat, UNIT, UNIT_BLOCKS};
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;

/// Converts the row in lane `lane` of a panel of format F to floats.
///
/// # Safety
/// `panel` is a whole panel, `out` holds `columns` floats, lane < LANES.
pub struct PanelRow<F> {
    pub panel: *const u8,
    pub columns: usize,
    pub lane: usize,
    pub out: *mut f32,
    pub format: PhantomData<F>,
}

/// Kernel that runs `PanelRow` for a block format.
pub struct BlockRow<F>(pub PanelRow<F>);

impl<F: BlockFormat> Kernel for BlockRow<F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let PanelRow { panel, columns, lane, out, .. } = self.0;
        unsafe { block_row::<S, F>(s, panel, columns, lane, out) }
    }
}

/// Kernel that runs `PanelRow` for a float format.
pub struct FloatRow<F>(pub PanelRow<F>);

impl<F: FloatFormat> Kernel for FloatRow<F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let PanelRow { panel, columns, lane, out, .. } = self.0;
        unsafe { float_row::<S, F>(s, panel, columns, lane, out) }
    }
}

#[inline(always)]
unsafe fn block_row<S: Simd, F: BlockFormat>(s: S, panel: *const u8, columns: usize, lane: usize, out: *mut f32) {
    let mut unit = panel;
    for start in (0..columns).step_by(UNIT) {
        let blocks = if columns - start >= UNIT { UNIT_BLOCKS } else { (columns - start) / BLOCK };
        for b in 0..blocks {
            unsafe { block_of_row::<S, F>(s, unit, blocks, b, lane, out.add(start + b * BLOCK)) }
        }
        let (scale_bytes, code_bytes) = F::unit_layout(blocks, S::LANES);
        unit = unsafe { unit.add(scale_bytes + code_bytes) };
    }
}

#[inline(always)]
unsafe fn block_of_row<S: Simd, F: BlockFormat>(
    s: S,
    unit: *const u8,
    blocks: usize,
    b: usize,
    lane: usize,
    out: *mut f32,
) {
    unsafe {
        let codes = F::codes(s, unit, blocks, b);
        let (scales, mins) = (F::scales(s, unit, blocks, b), F::mins(s, unit, blocks, b));
        let mut bytes = [0u8; 64];
        let (mut scale, mut min) = ([0f32; 16], [0f32; 16]);
        for (g, vector) in codes.into_iter().enumerate() {
            let part = g / 4 * (BLOCK / F::SUB - 1);
            s.b_store(bytes.as_mut_ptr(), vector);
            s.store(scale.as_mut_ptr(), scales[part]);
            s.store(min.as_mut_ptr(), mins[part]);
            for c in 0..4 {
                let value = i32::from(bytes[4 * lane + c]) - F::OFFSET;
                *out.add(4 * g + c) = scale[lane] * value as f32 - min[lane];
            }
        }
    }
}

#[inline(always)]
unsafe fn float_row<S: Simd, F: FloatFormat>(s: S, panel: *const u8, columns: usize, lane: usize, out: *mut f32) {
    let mut lanes = [0f32; 16];
    for k in 0..columns {
        unsafe {
            s.store(lanes.as_mut_ptr(), F::load(s, panel.add(k * S::LANES * F::BLOCK_BYTES)));
            *out.add(k) = lanes[lane];
        }
    }
}
