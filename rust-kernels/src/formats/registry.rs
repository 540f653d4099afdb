//! The formats by GGUF type id: their layout, packing and kernels.
use super::{BlockFormat, Decoding, FloatFormat, block_panel_bytes, pack_block_panel, pack_float_panel, put_factors};
use crate::kernels::float_gemm::{FloatGemm, FloatRows};
use crate::kernels::gemm::{Gemm, Prepare, block_gemm};
use crate::kernels::panel_row::{BlockRow, FloatRow, PanelRow};
use crate::kernels::quant_rows::QuantRows;
use crate::simd::Isa;
use std::marker::PhantomData;

/// Writes factors to a packed panel. Arguments: panel, columns, one factor per lane.
pub type PutFactors = fn(&mut [u8], usize, &[f32]);

/// A weight format.
pub struct Format {
    /// GGUF's type id.
    pub id: u32,
    /// ggml's name of the type.
    pub name: &'static str,
    /// Columns and bytes of a block in the file.
    pub block_columns: usize,
    pub block_bytes: usize,
    /// Bytes of a panel. Arguments: columns, lanes.
    pub panel_bytes: fn(usize, usize) -> usize,
    /// Packs LANES rows. Arguments: source, stride between rows, columns, lanes, panel.
    pub pack_panel: fn(&[u8], usize, usize, usize, &mut [u8]),
    /// Only for formats with room for factors.
    pub put_factors: Option<PutFactors>,
    pub dequantize: fn(&[u8], &mut [f32]),
    pub find_nan: fn(&[u8]) -> Option<usize>,
    pub kernels: FormatKernels,
}

/// The kernels of a block format. Safety: as `Prepare`, `BlockGemm` and `PanelRow`.
pub struct BlockKernels {
    pub decoding: Decoding,
    pub prepare: unsafe fn(Isa, &QuantRows, usize, *mut f32),
    pub gemm: unsafe fn(Isa, &Gemm, &QuantRows, *const f32),
    pub row: unsafe fn(Isa, *const u8, usize, usize, *mut f32),
}

/// The kernels of a float format. Safety: as `FloatGemm` and `PanelRow`.
pub struct FloatKernels {
    pub gemm: unsafe fn(Isa, &Gemm, &FloatRows),
    pub row: unsafe fn(Isa, *const u8, usize, usize, *mut f32),
}

pub enum FormatKernels {
    Block(BlockKernels),
    Float(FloatKernels),
}

impl Format {
    const fn of_blocks<F: BlockFormat>(id: u32) -> Self {
        Self {
            id,
            name: F::NAME,
            block_columns: F::BLOCK_COLUMNS,
            block_bytes: F::BLOCK_BYTES,
            panel_bytes: block_panel_bytes::<F>,
            pack_panel: pack_block_panel::<F>,
            put_factors: if F::HAS_FACTOR { Some(put_factors::<F>) } else { None },
            dequantize: F::dequantize,
            find_nan: F::find_nan,
            kernels: FormatKernels::Block(BlockKernels {
                decoding: Decoding::of::<F>(),
                prepare: |isa, x, m, corrections| unsafe {
                    isa.run(Prepare { x, m, corrections, format: PhantomData::<F> })
                },
                gemm: |isa, args, x, corrections| unsafe { block_gemm::<F>(isa, args, x, corrections) },
                row: |isa, panel, columns, lane, out| unsafe {
                    isa.run(BlockRow(PanelRow { panel, columns, lane, out, format: PhantomData::<F> }))
                },
            }),
        }
    }

    const fn of_floats<F: FloatFormat>(id: u32) -> Self {
        Self {
            id,
            name: F::NAME,
            block_columns: 1,
            block_bytes: F::BLOCK_BYTES,
            panel_bytes: |columns, lanes| (columns * lanes * F::BLOCK_BYTES).next_multiple_of(64),
            pack_panel: pack_float_panel::<F>,
            put_factors: None,
            dequantize: F::dequantize,
            find_nan: F::find_nan,
            kernels: FormatKernels::Float(FloatKernels {
                gemm: |isa, args, x| unsafe { isa.run(FloatGemm { args, x, format: PhantomData::<F> }) },
                row: |isa, panel, columns, lane, out| unsafe {
                    isa.run(FloatRow(PanelRow { panel, columns, lane, out, format: PhantomData::<F> }))
                },
            }),
        }
    }

    /// Whether the kernels read 8-bit blocks of x instead of floats.
    pub fn is_block(&self) -> bool {
        matches!(self.kernels, FormatKernels::Block(_))
    }

    /// A row of a panel as floats.
    ///
    /// # Safety
    /// As `PanelRow`.
    pub unsafe fn row(&self, isa: Isa, panel: *const u8, columns: usize, lane: usize, out: *mut f32) {
        let row = match &self.kernels {
            FormatKernels::Block(k) => k.row,
            FormatKernels::Float(k) => k.row,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { row(isa, panel, columns, lane, out) }
    }
}

macro_rules! formats {
    (blocks: [$(($id:literal, $block:ident)),*], floats: [$(($fid:literal, $float:ident)),*]) => {
        /// All formats, blocks first.
        pub static FORMATS: &[Format] = &[
            $(Format::of_blocks::<super::$block>($id),)*
            $(Format::of_floats::<super::$float>($fid),)*
        ];
    };
}
crate::for_each_format!(formats);

/// The format of a GGUF type.
pub fn format(id: u32) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.id == id)
}

/// The format with ggml's type name `name`.
pub fn format_named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}
