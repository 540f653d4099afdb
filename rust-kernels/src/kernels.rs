//! The kernel tables: every kernel compiled for every instruction set, and the choice between them at start.
use crate::error::{Error, Result};
use crate::formats::{self, BlockFormat, FloatFormat, GgufType};
use crate::ops::attention::Attention;
use crate::ops::candidates::Best;
use crate::ops::delta_rule::DeltaRule;
use crate::ops::float_gemm::FloatRows;
use crate::ops::gemm::Gemm;
use crate::ops::kv::{KvFormat, KvType, f16::F16, q8_0::Q8_0};
use crate::ops::norm::Outputs;
use crate::ops::quantize::QuantRows;
use crate::ops::rope::RopeShape;
use crate::ops::short_conv::ShortConv;
#[cfg(target_arch = "aarch64")]
use crate::simd::neon as arm;

/// The kernels of a block format.
pub struct BlockKernels {
    pub prepare: unsafe fn(&QuantRows, usize, *mut f32),
    pub gemm: unsafe fn(&Gemm, &QuantRows, *const f32),
    pub row: unsafe fn(*const u8, usize, usize, *mut f32),
}

/// The kernels of a float format.
pub struct FloatKernels {
    pub gemm: unsafe fn(&Gemm, &FloatRows),
    pub row: unsafe fn(*const u8, usize, usize, *mut f32),
}

/// The kernels of a type of KV cache.
pub struct KvKernels {
    pub append_key: unsafe fn(*const f32, usize, *mut u8, usize),
    pub append_value: unsafe fn(*const f32, usize, *mut u8, usize),
    pub attention: unsafe fn(&Attention),
}

pub enum FormatKernels {
    Block(BlockKernels),
    Float(FloatKernels),
}

/// One instruction set's kernels. Safety of the functions: as their generic originals in `ops`; that the CPU can run
/// them is what handing out the table promises.
pub struct Kernels {
    pub isa: &'static str,
    pub lanes: usize,
    pub tile: usize,
    /// Panels that an integer kernel takes at once where it has many tokens, and a float kernel.
    pub panels: usize,
    pub float_panels: usize,
    pub format: fn(u32) -> Option<FormatKernels>,
    pub rms_norm: unsafe fn(*const f32, *const f32, usize, f32, &Outputs, usize, *mut f32),
    pub swiglu: unsafe fn(*mut f32, *const f32, usize, &Outputs, usize, usize),
    pub quantize_row: unsafe fn(*const f32, &QuantRows, usize),
    pub norm_and_rotate: unsafe fn(*mut f32, *const f32, *const f32, &RopeShape),
    pub kv: fn(KvType) -> KvKernels,
    pub dot: unsafe fn(*const f32, *const f32, usize) -> f32,
    pub short_conv: unsafe fn(&ShortConv),
    pub delta_rule: unsafe fn(&DeltaRule),
    pub log_sum_exp: unsafe fn(&[f32]) -> f32,
    pub select: unsafe fn(&[f32], usize, &mut Best),
    /// Busy work for the measurement of peaks: runs n rounds and returns the multiply-adds done.
    pub int8_peak: unsafe fn(u64) -> u64,
    pub f32_peak: unsafe fn(u64) -> u64,
    /// Reads a buffer, a vector at a time.
    pub read: unsafe fn(&[u8]) -> u64,
}

/// The arms of `format`: `$for_block` and `$for_float` name the generic constructors.
macro_rules! format_table {
    (blocks: [$(($id:literal, $block:ident)),*], floats: [$(($fid:literal, $float:ident)),*]) => {
        fn format(id: u32) -> Option<FormatKernels> {
            Some(match id {
                $($id => FormatKernels::Block(BlockKernels {
                    prepare: prepare::<formats::$block>,
                    gemm: gemm::<formats::$block>,
                    row: block_row::<formats::$block>,
                }),)*
                $($fid => FormatKernels::Float(FloatKernels {
                    gemm: float_gemm::<formats::$float>,
                    row: float_row::<formats::$float>,
                }),)*
                _ => return None,
            })
        }
    };
}

macro_rules! kernels {
    ($module:ident, $simd:ty, $isa:literal $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;
            use crate::ops::*;
            type S = $simd;

            $(#[$feature])?
            unsafe fn prepare<F: BlockFormat>(x: &QuantRows, m: usize, corrections: *mut f32) {
                unsafe { super::super::ops::gemm::prepare::<S, F>(x, m, corrections) }
            }
            $(#[$feature])?
            unsafe fn gemm<F: BlockFormat>(args: &Gemm, x: &QuantRows, corrections: *const f32) {
                unsafe { super::super::ops::gemm::gemm::<S, F>(args, x, corrections) }
            }
            $(#[$feature])?
            unsafe fn float_gemm<F: FloatFormat>(args: &Gemm, x: &FloatRows) {
                unsafe { super::super::ops::float_gemm::float_gemm::<S, F>(args, x) }
            }
            $(#[$feature])?
            unsafe fn block_row<F: BlockFormat>(panel: *const u8, columns: usize, lane: usize, out: *mut f32) {
                unsafe { embed::block_row::<S, F>(panel, columns, lane, out) }
            }
            $(#[$feature])?
            unsafe fn float_row<F: FloatFormat>(panel: *const u8, columns: usize, lane: usize, out: *mut f32) {
                unsafe { embed::float_row::<S, F>(panel, columns, lane, out) }
            }
            $(#[$feature])?
            unsafe fn rms_norm(
                x: *const f32,
                weight: *const f32,
                columns: usize,
                eps: f32,
                out: &Outputs,
                row: usize,
                scratch: *mut f32,
            ) {
                unsafe { norm::rms_norm::<S>(x, weight, columns, eps, out, row, scratch) }
            }
            $(#[$feature])?
            unsafe fn swiglu(gate: *mut f32, up: *const f32, n: usize, out: &Outputs, row: usize, start: usize) {
                unsafe { super::super::ops::swiglu::swiglu::<S>(gate, up, n, out, row, start) }
            }
            $(#[$feature])?
            unsafe fn quantize_row(x: *const f32, out: &QuantRows, row: usize) {
                unsafe { quantize::quantize_row::<S>(x, out, row) }
            }
            $(#[$feature])?
            unsafe fn norm_and_rotate(x: *mut f32, weight: *const f32, table: *const f32, shape: &RopeShape) {
                unsafe { rope::norm_and_rotate::<S>(x, weight, table, shape) }
            }
            $(#[$feature])?
            unsafe fn append_key<K: KvFormat>(x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
                unsafe { K::append_key::<S>(x, head_dim, block, slot) }
            }
            $(#[$feature])?
            unsafe fn append_value<K: KvFormat>(x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
                unsafe { K::append_value::<S>(x, head_dim, block, slot) }
            }
            $(#[$feature])?
            unsafe fn attention<K: KvFormat>(a: &Attention) {
                unsafe { super::super::ops::attention::attention::<S, K>(a) }
            }
            fn kv_of<K: KvFormat>() -> KvKernels {
                KvKernels {
                    append_key: append_key::<K>,
                    append_value: append_value::<K>,
                    attention: attention::<K>,
                }
            }
            fn kv(kind: KvType) -> KvKernels {
                match kind {
                    KvType::F16 => kv_of::<F16>(),
                    KvType::Q8_0 => kv_of::<Q8_0>(),
                }
            }
            $(#[$feature])?
            unsafe fn dot(a: *const f32, b: *const f32, n: usize) -> f32 {
                unsafe { candidates::dot::<S>(a, b, n) }
            }
            $(#[$feature])?
            unsafe fn short_conv(a: &ShortConv) {
                unsafe { super::super::ops::short_conv::short_conv::<S>(a) }
            }
            $(#[$feature])?
            unsafe fn delta_rule(a: &DeltaRule) {
                unsafe { super::super::ops::delta_rule::delta_rule::<S>(a) }
            }
            $(#[$feature])?
            unsafe fn log_sum_exp(logits: &[f32]) -> f32 {
                unsafe { candidates::log_sum_exp::<S>(logits) }
            }
            $(#[$feature])?
            unsafe fn select(logits: &[f32], k: usize, best: &mut Vec<(f32, i32)>) {
                unsafe { candidates::select::<S>(logits, k, best) }
            }
            $(#[$feature])?
            unsafe fn int8_peak(rounds: u64) -> u64 {
                unsafe { peaks::int8_peak::<S>(rounds) }
            }
            $(#[$feature])?
            unsafe fn f32_peak(rounds: u64) -> u64 {
                unsafe { peaks::f32_peak::<S>(rounds) }
            }
            $(#[$feature])?
            unsafe fn read(buffer: &[u8]) -> u64 {
                unsafe { peaks::read::<S>(buffer) }
            }
            $crate::for_each_format!(format_table);

            pub static KERNELS: Kernels = Kernels {
                isa: $isa,
                lanes: <S as crate::simd::Simd>::LANES,
                tile: <S as crate::simd::Simd>::TILE,
                panels: <S as crate::simd::Simd>::PANELS,
                float_panels: <S as crate::simd::Simd>::FLOAT_PANELS,
                format,
                rms_norm,
                swiglu,
                quantize_row,
                norm_and_rotate,
                kv,
                dot,
                short_conv,
                delta_rule,
                log_sum_exp,
                select,
                int8_peak,
                f32_peak,
                read,
            };
        }
    };
}

kernels!(scalar, crate::simd::scalar::Scalar, "scalar");
#[cfg(target_arch = "x86_64")]
kernels!(avx2, crate::simd::avx2::Avx2<false>, "avx2", #[target_feature(enable = "avx2,fma,f16c")]);
#[cfg(all(target_arch = "x86_64", not(vnni_evex)))]
kernels!(
    avx2_vnni,
    crate::simd::avx2::Avx2<true>,
    "avx2-vnni",
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
);
#[cfg(all(target_arch = "x86_64", vnni_evex))]
kernels!(
    avx2_vnni,
    crate::simd::avx2::Avx2<true>,
    "avx2-vnni",
    #[target_feature(enable = "avx2,fma,f16c,avx512vl,avx512vnni")]
);
#[cfg(target_arch = "x86_64")]
kernels!(
    avx512,
    crate::simd::avx512::Avx512<false>,
    "avx512",
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
);
#[cfg(target_arch = "x86_64")]
kernels!(
    avx512_vnni,
    crate::simd::avx512::Avx512<true>,
    "avx512-vnni",
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
);
#[cfg(target_arch = "aarch64")]
kernels!(neon, arm::Neon<{ arm::WIDENING }>, "neon");
#[cfg(target_arch = "aarch64")]
kernels!(
    neon_dotprod,
    arm::Neon<{ arm::SDOT }>,
    "neon-dotprod",
    #[target_feature(enable = "neon,dotprod")]
);
#[cfg(target_arch = "aarch64")]
kernels!(
    neon_i8mm,
    arm::Neon<{ arm::USDOT }>,
    "neon-i8mm",
    #[target_feature(enable = "neon,dotprod,i8mm")]
);

/// The tables that this CPU can run, best first.
pub fn available() -> Vec<&'static Kernels> {
    let mut tables = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        let avx512_vnni = avx512 && is_x86_feature_detected!("avx512vnni");
        if avx2 && avx512_vnni {
            tables.push(&avx512_vnni::KERNELS);
        }
        let avx_vnni = if cfg!(vnni_evex) { avx512_vnni } else { is_x86_feature_detected!("avxvnni") };
        if avx2 && avx_vnni {
            tables.push(&avx2_vnni::KERNELS);
        }
        if avx2 && avx512 {
            tables.push(&avx512::KERNELS);
        }
        if avx2 {
            tables.push(&avx2::KERNELS);
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let dotprod = std::arch::is_aarch64_feature_detected!("dotprod");
        if dotprod && std::arch::is_aarch64_feature_detected!("i8mm") {
            tables.push(&neon_i8mm::KERNELS);
        }
        if dotprod {
            tables.push(&neon_dotprod::KERNELS);
        }
        tables.push(&neon::KERNELS);
    }
    tables.push(&scalar::KERNELS);
    tables
}

/// The best table, or the one that is asked for by name.
pub fn detect(wanted: &str) -> Result<&'static Kernels> {
    let tables = available();
    if wanted.is_empty() {
        return Ok(tables[0]);
    }
    tables.iter().find(|k| k.isa == wanted).copied().ok_or_else(|| {
        let names: Vec<_> = tables.iter().map(|k| k.isa).collect();
        Error::new(format!("Instruction set {wanted:?} is not available on this CPU; available: {}", names.join(", ")))
    })
}

/// How a GGUF type is laid out in files and panels.
pub struct FormatLayout {
    pub name: &'static str,
    pub block_columns: usize,
    pub block_bytes: usize,
    pub is_block: bool,
    pub panel_bytes: fn(usize, usize) -> usize,
    pub pack_panel: fn(&[u8], usize, usize, usize, &mut [u8]),
    pub dequantize: fn(&[u8], &mut [f32]),
    pub find_nan: fn(&[u8]) -> Option<usize>,
}

fn float_panel_bytes<F: FloatFormat>(columns: usize, lanes: usize) -> usize {
    (columns * lanes * F::BLOCK_BYTES).next_multiple_of(64)
}

macro_rules! layout_table {
    (blocks: [$(($id:literal, $block:ident)),*], floats: [$(($fid:literal, $float:ident)),*]) => {
        /// The layout of a GGUF type, by its id.
        pub fn layout(id: u32) -> Option<FormatLayout> {
            Some(match id {
                $($id => FormatLayout {
                    name: formats::$block::NAME,
                    block_columns: formats::$block::BLOCK_COLUMNS,
                    block_bytes: formats::$block::BLOCK_BYTES,
                    is_block: true,
                    panel_bytes: formats::block_panel_bytes::<formats::$block>,
                    pack_panel: formats::pack_block_panel::<formats::$block>,
                    dequantize: formats::$block::dequantize,
                    find_nan: formats::$block::find_nan,
                },)*
                $($fid => FormatLayout {
                    name: formats::$float::NAME,
                    block_columns: 1,
                    block_bytes: formats::$float::BLOCK_BYTES,
                    is_block: false,
                    panel_bytes: float_panel_bytes::<formats::$float>,
                    pack_panel: formats::pack_float_panel::<formats::$float>,
                    dequantize: formats::$float::dequantize,
                    find_nan: formats::$float::find_nan,
                },)*
                _ => return None,
            })
        }

        /// All layouts with their ids, in the order of the ids.
        pub fn layouts() -> Vec<(u32, FormatLayout)> {
            let mut ids = [$($id,)* $($fid,)*];
            ids.sort_unstable();
            ids.into_iter().filter_map(|id| Some((id, layout(id)?))).collect()
        }
    };
}
crate::for_each_format!(layout_table);
