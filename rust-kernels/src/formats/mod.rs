//! Weight formats. Each file has the GGUF block, its plain dequantizer (the reference in tests), and the packer from
//! blocks to panels. It also has the panel decoder for the generic kernels.
//!
//! # Panels
//! A panel holds LANES rows of a matrix side by side. Block formats are cut into units of 256 columns; the last may
//! have fewer blocks of 32. A unit holds its scales, then its codes, so kernels read a matrix as one ascending
//! stream. Rows beyond the matrix are zero.
use crate::half::f16_to_f32;
use crate::simd::Simd;

mod bf16;
mod f16;
mod f32;
mod grid_codes;
mod grids;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
pub mod planes;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod registry;
mod tq1_0;
mod tq2_0;

pub use self::registry::{BlockKernels, FORMATS, FloatKernels, Format, FormatKernels, format, format_named};
pub use self::{bf16::Bf16, f16::F16, f32::F32};
pub use self::{iq1_m::Iq1M, iq1_s::Iq1S, tq1_0::Tq1_0, tq2_0::Tq2_0};
pub use self::{iq2_s::Iq2S, iq2_xs::Iq2Xs, iq2_xxs::Iq2Xxs, iq3_s::Iq3S, iq3_xxs::Iq3Xxs};
pub use self::{iq4_nl::Iq4Nl, iq4_xs::Iq4Xs, mxfp4::Mxfp4, nvfp4::Nvfp4};
pub use self::{q1_0::Q1_0, q2_0::Q2_0};
pub use self::{q2_k::Q2K, q3_k::Q3K, q4_k::Q4K, q5_k::Q5K, q6_k::Q6K};
pub use self::{q4_0::Q4_0, q4_1::Q4_1, q5_0::Q5_0, q5_1::Q5_1, q8_0::Q8_0};

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
            blocks: [
                (2, Q4_0), (3, Q4_1), (6, Q5_0), (7, Q5_1), (8, Q8_0), (10, Q2K), (11, Q3K), (12, Q4K), (13, Q5K),
                (14, Q6K), (16, Iq2Xxs), (17, Iq2Xs), (18, Iq3Xxs), (19, Iq1S), (20, Iq4Nl), (21, Iq3S), (22, Iq2S),
                (23, Iq4Xs), (29, Iq1M), (34, Tq1_0), (35, Tq2_0), (39, Mxfp4), (40, Nvfp4), (41, Q1_0),
                (42, Q2_0)
            ],
            floats: [(0, F32), (1, F16), (30, Bf16)]
        }
    };
}

/// A tensor type in a GGUF file.
pub trait GgufType: 'static {
    /// ggml's name of the type.
    const NAME: &'static str;
    /// Columns and bytes of a block in the file.
    const BLOCK_COLUMNS: usize;
    const BLOCK_BYTES: usize;
    /// Dequantizes one block of the file; `out.len() == BLOCK_COLUMNS`.
    fn dequantize(block: &[u8], out: &mut [f32]);
    /// Index of the first block with a NaN scale, for formats whose kernels do not handle NaN scales.
    fn find_nan(_blocks: &[u8]) -> Option<usize> {
        None
    }
}

/// A format of small integers with scales: value = scale * (code - OFFSET) - min.
///
/// A unit's scales are vectors of LANES bytes or half floats: first those of the whole unit, then those of each
/// block.
#[allow(clippy::missing_safety_doc)] // `unit` is a whole unit of `blocks` blocks, `b < blocks`
pub trait BlockFormat: GgufType {
    /// Codes are below 2^BITS. With 8 bits a code stands for code - 128, and OFFSET is 128.
    const BITS: u32;
    /// The number that is subtracted from each code; 0 with HAS_MIN.
    const OFFSET: i32;
    /// Columns that share a scale: 16 or 32.
    const SUB: usize;
    const HAS_MIN: bool;
    /// Stored bits per code: fewer than BITS if codes are looked up, more if a block's scales precede them.
    const STORED_BITS: usize;
    /// Whether decoding is so slow that storing decoded codes is worthwhile for few tokens.
    const SLOW_CODES: bool = false;
    /// Bytes per row in front of the codes, scales and other data: once per unit, and for each block of 32 columns.
    const UNIT_SCALES: usize;
    const BLOCK_SCALES: usize;
    /// Whether the unit's scales start with a float factor of the other scales: 1, or a factor from `put_factors`.
    const HAS_FACTOR: bool = false;
    /// These bytes per row are padded to a multiple of this. With 4, codes start at a vector boundary.
    const CODES_ALIGN: usize = 4;

    /// Packs the scales and codes of 32 columns of one row. `block` is the file block that contains them. In a longer
    /// file block they are columns 32 * b.. of it.
    fn pack_block(block: &[u8], b: usize, to: &mut Slot);

    /// The codes of block b's 32 columns. Vector g holds columns 4g..4g+4 of every row.
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8];
    /// Scales of block b's first and second 16 columns. With SUB = 32 only the first counts.
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::F; 2];
    /// The mins of the same columns, with HAS_MIN.
    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, _unit: *const u8, _blocks: usize, _b: usize) -> [S::F; 2] {
        [s.splat(0.0); 2]
    }

    /// Bytes of a block's codes of LANES rows.
    #[inline(always)]
    fn code_bytes(lanes: usize) -> usize {
        planes::plane_bytes(Self::STORED_BITS, lanes)
    }

    /// Bytes of a unit's scales, padded, and of its codes, for LANES rows.
    #[inline(always)]
    fn unit_layout(blocks: usize, lanes: usize) -> (usize, usize) {
        let scales = (Self::UNIT_SCALES + blocks * Self::BLOCK_SCALES) * lanes;
        (scales.next_multiple_of(Self::CODES_ALIGN * lanes), blocks * Self::code_bytes(lanes))
    }

    /// Address of block b's planes.
    #[inline(always)]
    unsafe fn planes<S: Simd>(unit: *const u8, blocks: usize, b: usize) -> *const u8 {
        let before = Self::unit_layout(blocks, S::LANES).0 + b * Self::code_bytes(S::LANES);
        unsafe { unit.add(before) }
    }

    /// Packs LANES rows of one unit. Row r's file blocks start at `src[r * stride]`.
    fn pack_unit(src: &[u8], stride: usize, blocks: usize, lanes: usize, unit: &mut [u8]) {
        unit.fill(0);
        let (scales, codes) = unit.split_at_mut(Self::unit_layout(blocks, lanes).0);
        for (b, planes) in codes.chunks_exact_mut(Self::code_bytes(lanes)).enumerate() {
            let from = b * BLOCK / Self::BLOCK_COLUMNS * Self::BLOCK_BYTES;
            for lane in 0..lanes {
                let block = &src[lane * stride + from..][..Self::BLOCK_BYTES];
                let scales_of_block = Self::UNIT_SCALES + b * Self::BLOCK_SCALES;
                Self::pack_block(block, b, &mut Slot { lanes, lane, scales, scales_of_block, planes });
            }
        }
    }
}

/// How a format's codes are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// Codes are bytes that kernels read in place.
    None,
    Fast,
    /// `BlockFormat::SLOW_CODES`.
    Slow,
}

impl Decoding {
    pub const fn of<F: BlockFormat>() -> Self {
        match F::STORED_BITS {
            8 => Self::None,
            _ if F::SLOW_CODES => Self::Slow,
            _ => Self::Fast,
        }
    }
}

/// The place of one row in one block of a unit.
pub struct Slot<'a> {
    lanes: usize,
    lane: usize,
    scales: &'a mut [u8],
    scales_of_block: usize,
    planes: &'a mut [u8],
}

impl Slot<'_> {
    /// Writes a half float of the file to the scales of the unit.
    #[inline(always)]
    fn unit_half(&mut self, at: usize, half: &[u8]) {
        let to = at * self.lanes + 2 * self.lane;
        self.scales[to..to + 2].copy_from_slice(&half[..2]);
    }

    /// Writes 1 to the unit's leading factor.
    #[inline(always)]
    fn unit_factor(&mut self) {
        self.scales[4 * self.lane..][..4].copy_from_slice(&1f32.to_le_bytes());
    }

    /// Writes a half float of the file to the scales of the block.
    #[inline(always)]
    fn half(&mut self, at: usize, half: &[u8]) {
        self.unit_half(self.scales_of_block + at, half);
    }

    /// Writes a half float of the file to the planes, at byte AT of each row.
    #[inline(always)]
    fn half_in_planes<const AT: usize>(&mut self, half: &[u8]) {
        let to = AT * self.lanes + 2 * self.lane;
        self.planes[to..to + 2].copy_from_slice(&half[..2]);
    }

    /// Writes a byte to the scales of the block.
    #[inline(always)]
    fn byte(&mut self, at: usize, byte: u8) {
        self.scales[(self.scales_of_block + at) * self.lanes + self.lane] = byte;
    }

    /// Writes codes to a single plane of BITS bits.
    #[inline(always)]
    fn codes<const BITS: usize>(&mut self, codes: &[u8; BLOCK]) {
        planes::put::<BITS, 0, 0>(self.planes, self.lanes, self.lane, codes);
    }

    /// Writes the LOW lower and HIGH higher bits of codes to a plane each, for `planes::get_split`.
    #[inline(always)]
    fn split_codes<const LOW: usize, const HIGH: usize>(&mut self, codes: &[u8; BLOCK]) {
        planes::put::<LOW, 0, HIGH>(self.planes, self.lanes, self.lane, codes);
        planes::put::<HIGH, LOW, 0>(self.planes, self.lanes, self.lane, codes);
    }
}

/// A format of floats: a panel is columns of LANES elements.
pub trait FloatFormat: GgufType {
    /// Whether instruction sets may compute with it as f16 (`Simd::f16_sums`).
    const IS_F16: bool = false;
    /// LANES elements from a panel.
    ///
    /// # Safety
    /// `p` points at LANES elements.
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F;
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

/// Writes the factors of a packed panel's rows to the start of every unit.
pub fn put_factors<F: BlockFormat>(panel: &mut [u8], columns: usize, factors: &[f32]) {
    let mut to = 0;
    for start in (0..columns).step_by(UNIT) {
        let (scales, codes) = F::unit_layout((columns - start).min(UNIT) / BLOCK, factors.len());
        for (lane, factor) in factors.iter().enumerate() {
            panel[to + 4 * lane..][..4].copy_from_slice(&factor.to_le_bytes());
        }
        to += scales + codes;
    }
}

/// Packs LANES rows into one panel of a float format: element (row, column) goes to column * lanes + row.
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

/// A little-endian u32 at `bytes[at]`.
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// The half float at `bytes[at]`.
#[inline]
fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16_at(bytes, at))
}

/// Element k of 32 nibbles. The low nibbles of 16 bytes are the first 16 elements, the high nibbles the rest.
#[inline(always)]
fn nibble(bytes: &[u8], k: usize) -> u8 {
    if k < 16 { bytes[k] & 15 } else { bytes[k - 16] >> 4 }
}
