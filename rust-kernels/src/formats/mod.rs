//! Weight formats. One file each: the GGUF block, its plain dequantiser (the truth that tests use), the packer
//! from blocks to panels, and the panel decoder that the shared kernels are generic over.
//!
//! # Panels
//! A panel holds LANES rows of a matrix side by side. Block formats are cut into units of 256 columns (the last
//! may hold fewer blocks of 32): the scales of the unit, then its codes, so that a matrix is read as one
//! ascending stream. Rows beyond the matrix are zero.
use crate::simd::Simd;

mod f16;
mod f32;
mod bf16;
pub mod planes;
mod q4_0;
mod q4_k;
mod q6_k;
mod q8_0;

pub use self::{bf16::Bf16, f16::F16, f32::F32, q4_0::Q4_0, q4_k::Q4K, q6_k::Q6K, q8_0::Q8_0};

/// Columns that one activation scale covers.
pub const BLOCK: usize = 32;
/// Columns of a panel's unit, and blocks in it.
pub const UNIT: usize = 256;
pub const UNIT_BLOCKS: usize = UNIT / BLOCK;

/// Calls `$mac!` with every block format as (GGUF type id, type), then every float format.
#[macro_export]
macro_rules! for_each_format {
    ($mac:ident) => {
        $mac! {
            blocks: [(2, Q4_0), (8, Q8_0), (12, Q4K), (14, Q6K)],
            floats: [(0, F32), (1, F16), (30, Bf16)]
        }
    };
}

/// How a tensor lies in the GGUF file.
pub trait GgufType: 'static {
    /// ggml's name of the type.
    const NAME: &'static str;
    /// Columns of a block of the file, and its bytes.
    const BLOCK_COLUMNS: usize;
    const BLOCK_BYTES: usize;
    /// The values of one block of the file; `out.len() == BLOCK_COLUMNS`.
    fn dequantize(block: &[u8], out: &mut [f32]);
}

/// A format of small integers under scales: value = scale * (code - OFFSET) - min.
#[allow(clippy::missing_safety_doc)] // `unit` is a whole unit of `blocks` blocks, `b < blocks`; S as simd says
pub trait BlockFormat: GgufType {
    /// Codes are below 2^BITS. With 8 bits a code stands for code - 128, and OFFSET is 128.
    const BITS: u32;
    const OFFSET: i32;
    /// Columns that share a scale: 16 or 32.
    const SUB: usize;
    const HAS_MIN: bool;

    /// Bytes of a unit's scales and of its codes, for LANES rows.
    fn unit_layout(blocks: usize, lanes: usize) -> (usize, usize);
    /// Packs LANES rows of one unit. Row r's file blocks start at `src[r * stride]`.
    fn pack_unit(src: &[u8], stride: usize, blocks: usize, lanes: usize, unit: &mut [u8]);

    /// The 32 columns of block b: columns 4g..4g+4 of every row in vector g.
    unsafe fn codes<S: Simd>(unit: *const u8, blocks: usize, b: usize) -> [S::B; 8];
    /// Scales of block b's first and second 16 columns; only the first counts where SUB is 32.
    unsafe fn scales<S: Simd>(unit: *const u8, blocks: usize, b: usize) -> [S::F; 2];
    /// Mins likewise, where HAS_MIN.
    #[inline(always)]
    unsafe fn mins<S: Simd>(_unit: *const u8, _blocks: usize, _b: usize) -> [S::F; 2] {
        unsafe { [S::splat(0.0); 2] }
    }
}

/// A format of floats: a panel is columns of LANES elements.
pub trait FloatFormat: GgufType {
    /// LANES elements from a panel.
    ///
    /// # Safety
    /// `p` points at LANES elements; S as simd says.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

/// Bytes of one panel of a block format, a multiple of 64.
pub fn block_panel_bytes<F: BlockFormat>(columns: usize, lanes: usize) -> usize {
    let (units, rest) = (columns / UNIT, columns % UNIT / BLOCK);
    let size = |blocks| -> usize {
        let (scales, codes) = F::unit_layout(blocks, lanes);
        scales + codes
    };
    (units * size(UNIT_BLOCKS) + if rest > 0 { size(rest) } else { 0 }).next_multiple_of(64)
}

/// Packs LANES rows, `stride` bytes apart in `src`, into one panel of a block format.
pub fn pack_block_panel<F: BlockFormat>(src: &[u8], stride: usize, columns: usize, lanes: usize, panel: &mut [u8]) {
    let (mut from, mut to) = (0, 0);
    for start in (0..columns).step_by(UNIT) {
        let blocks = (columns - start).min(UNIT) / BLOCK;
        let (scales, codes) = F::unit_layout(blocks, lanes);
        F::pack_unit(&src[from..], stride, blocks, lanes, &mut panel[to..to + scales + codes]);
        from += blocks * BLOCK / F::BLOCK_COLUMNS * F::BLOCK_BYTES;
        to += scales + codes;
    }
}

/// Packs LANES rows into one panel of a float format: element (row, column) to column * lanes + row.
pub fn pack_float_panel<F: FloatFormat>(src: &[u8], stride: usize, columns: usize, lanes: usize, panel: &mut [u8]) {
    let size = F::BLOCK_BYTES;
    for lane in 0..lanes {
        let row = &src[lane * stride..lane * stride + columns * size];
        for (k, element) in row.chunks_exact(size).enumerate() {
            let to = (k * lanes + lane) * size;
            panel[to..to + size].copy_from_slice(element);
        }
    }
}

/// A little-endian u16 at `bytes[at]`.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Copies one half float of a file block to lane `lane` of the f16 vector at `unit[at]`.
#[inline]
pub(crate) fn put_half(unit: &mut [u8], at: usize, lane: usize, half: &[u8]) {
    unit[at + 2 * lane..at + 2 * lane + 2].copy_from_slice(&half[..2]);
}

#[cfg(test)]
mod tests;
