//! Computes y = W x for weights in panels of small integers and activations in 8 bits. `thin_gemm` decodes panels into
//! registers for few tokens. `wide_gemm` decodes them into the first-level cache for many tokens.
//!
//! Every tile sums a row of y in the same order, so a result does not depend on its batch. For each group of columns
//! with a common scale, acc += x.scale * (scale * float(sum of code products)).
#[cfg(target_arch = "x86_64")]
use super::amx_gemm::{self, AmxGemm};
#[cfg(target_arch = "aarch64")]
use super::pair_gemm::PairGemm;
use super::quant_rows::QuantRows;
use super::scaling::parts;
use super::{thin_gemm, wide_gemm};
use crate::formats::{BLOCK, BlockFormat, Decoding};
use crate::simd::{Ahead, BIAS_BITS, Isa, Kernel, Simd};
#[cfg(target_arch = "x86_64")]
use crate::simd::{amx, amx::Vectors, avx2::Avx2, x86};
use crate::unroll16;
use std::marker::PhantomData;
use std::ops::Range;

/// The last step of a matrix product, which writes the sums to the output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue {
    Store,
    /// Adds the sums times this factor to the output, as for a residual connection.
    Add(f32),
}

/// The operands of a matrix product: some panels of W times some rows of x.
#[derive(Clone, Copy)]
pub struct Gemm {
    /// Address of the first panel to compute.
    pub panels: *const u8,
    pub panel_bytes: usize,
    /// Number of rows of W to compute. The last panel may be partial.
    pub rows: usize,
    pub columns: usize,
    /// The rows of x to compute are from..to. `from` is a multiple of the rows in a tile of x.
    pub from: usize,
    pub to: usize,
    /// Output: [to - from][ldo] floats, from row `from` of x and the first row of W on.
    pub out: *mut f32,
    pub ldo: usize,
    /// The bias, one float per row of W; null if there is none.
    pub bias: *const f32,
    pub epilogue: Epilogue,
}

/// Returns the number of floats that `Prepare` writes for m rows.
pub fn corrections_len(m: usize, columns: usize, widest: usize) -> usize {
    m.next_multiple_of(widest) * (columns / BLOCK) * 2
}

/// Precomputes the correction for a format's offset or min, for each row and block of x. Their layout follows the tiles
/// of x: [tile][block][part][T]. A correction is BIAS's bits - OFFSET * sum as i32. With HAS_MIN it is scale * sum as
/// f32.
///
/// # Safety
/// `x` holds m rows; `corrections` has `corrections_len` floats.
pub struct Prepare<'a, F> {
    pub x: &'a QuantRows,
    pub m: usize,
    pub corrections: *mut f32,
    pub format: PhantomData<F>,
}

impl<F: BlockFormat> Kernel for Prepare<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        let Self { x, m, corrections, .. } = self;
        let (blocks, t) = (x.columns / BLOCK, x.tile);
        let offset = if F::BITS == 8 { S::WIDE_BIAS } else { F::OFFSET };
        let parts = parts::<F>();
        for tile in 0..m.div_ceil(t) {
            for b in 0..blocks {
                // SAFETY: the tile and the block are within x, and `corrections` was sized for them.
                unsafe {
                    let (meta, to) = (x.meta(tile, b, 0), corrections.add((tile * blocks + b) * parts * t));
                    let sums = meta.add(t).cast::<i32>();
                    for slot in 0..t.min(m - tile * t) {
                        let (first, second) = (*sums.add(slot), *sums.add(t + slot));
                        let values = if parts == 1 { [first.wrapping_add(second), 0] } else { [first, second] };
                        for (part, value) in values.into_iter().take(parts).enumerate() {
                            let at = to.add(part * t + slot);
                            if F::HAS_MIN {
                                *at = *meta.add(slot) * value as f32;
                            } else {
                                // A plan may read a buffer that was never quantized. Its result is then arbitrary, but
                                // the kernel must not panic.
                                at.cast::<i32>().write(BIAS_BITS.wrapping_sub(offset.wrapping_mul(value)));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Computes `args.rows` rows of W x. `corrections` is the output of `Prepare` for x and this format.
///
/// # Safety
/// All pointers hold what `args` says.
pub struct BlockGemm<'a, F> {
    pub args: &'a Gemm,
    pub x: &'a QuantRows,
    pub corrections: *const f32,
    pub format: PhantomData<F>,
}

impl<F: BlockFormat> Kernel for BlockGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { args, x, corrections, .. } = self;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let wide = match Decoding::of::<F>() {
                Decoding::None => S::WIDE_TOKENS_BYTES,
                Decoding::Fast => S::WIDE_TOKENS,
                Decoding::Slow => S::WIDE_TOKENS_SLOW,
            };
            if args.to - args.from >= wide && x.tile >= wide_gemm::tokens::<S>() {
                wide_gemm::gemm::<S, F>(s, args, x, corrections);
            } else {
                thin_gemm::gemm::<S, F, false>(s, args, x, corrections);
            }
        }
    }
}

/// Kernel that computes `BlockGemm` for one or two tokens on cores with high memory latency.
#[cfg(target_arch = "x86_64")]
struct FarGemm<'a, F>(BlockGemm<'a, F>);

#[cfg(target_arch = "x86_64")]
impl<F: BlockFormat> Kernel for FarGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let BlockGemm { args, x, corrections, .. } = self.0;
        // SAFETY: guaranteed by the caller.
        unsafe { thin_gemm::gemm::<S, F, true>(s, args, x, corrections) }
    }
}

/// Returns the number of tokens from which `wide_gemm`, or an instruction set's replacement for it, computes the
/// panels.
pub fn wide_tokens(isa: Isa, decoding: Decoding) -> usize {
    match (isa, decoding) {
        // A 48 KB first-level cache holds the codes of three panels and of the next three, but the activations and sums
        // of few tokens.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512Vnni(_), Decoding::None) if x86::has_large_l1() => 11,
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2Plain(_), Decoding::None) => Avx2::<false>::WIDE_TOKENS_BYTES,
        _ => isa.wide_tokens(decoding == Decoding::Slow),
    }
}

/// Returns a number of tokens whose multiples are efficient: a product with slightly fewer tokens takes as long. The
/// next token costs more than its share.
pub fn whole_tokens(isa: Isa) -> usize {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Amx(_) => amx::ROWS,
        _ => 4,
    }
}

/// Runs `wide_gemm` for fewer tokens than the instruction set's own limit.
#[cfg(target_arch = "x86_64")]
struct WideGemm<'a, F>(BlockGemm<'a, F>);

#[cfg(target_arch = "x86_64")]
impl<F: BlockFormat> Kernel for WideGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let BlockGemm { args, x, corrections, .. } = self.0;
        // SAFETY: guaranteed by the caller.
        unsafe { wide_gemm::gemm::<S, F>(s, args, x, corrections) }
    }
}

/// Returns the vectors if this core must prefetch 4 KB ahead instead of 1 KB for one or two tokens. On these cores that
/// reads 4-bit formats up to a fifth faster; on Zen 4 it is slower (docs/lab/2026-11.md, T6).
#[cfg(target_arch = "x86_64")]
fn far_from_memory(isa: Isa) -> Option<Vectors> {
    match isa {
        Isa::Avx512Amx(amx) => Some(amx.vectors()),
        Isa::Avx512Vnni(vectors) if x86::has_large_l1() => Some(vectors),
        _ => None,
    }
}

/// Computes `BlockGemm` with the instruction set's best kernel for this number of rows of x.
///
/// # Safety
/// As `BlockGemm`.
pub unsafe fn block_gemm<F: BlockFormat>(isa: Isa, args: &Gemm, x: &QuantRows, corrections: *const f32) {
    let gemm = BlockGemm { args, x, corrections, format: PhantomData::<F> };
    #[cfg(target_arch = "x86_64")]
    let rows = args.to - args.from;
    #[cfg(target_arch = "x86_64")]
    if rows <= 2
        && let Some(vectors) = far_from_memory(isa)
    {
        // SAFETY: guaranteed by the caller.
        return unsafe { vectors.run(FarGemm(gemm)) };
    }
    #[cfg(target_arch = "x86_64")]
    if let Isa::Avx512Amx(amx) = isa
        && const { F::SUB == BLOCK }
        && amx_gemm::pays(rows)
        && x.tile == isa.tile()
    {
        // SAFETY: guaranteed by the caller.
        return unsafe { amx.run(AmxGemm(amx, gemm)) };
    }
    #[cfg(target_arch = "x86_64")]
    if let Isa::Avx512Vnni(vectors) = isa
        && const { matches!(Decoding::of::<F>(), Decoding::None) }
        && rows >= wide_tokens(isa, Decoding::None)
        && x.tile == isa.tile()
    {
        // SAFETY: guaranteed by the caller.
        return unsafe { vectors.run(WideGemm(gemm)) };
    }
    #[cfg(target_arch = "aarch64")]
    if let Isa::NeonI8mm(neon) = isa
        && x.in_pairs()
    {
        // SAFETY: guaranteed by the caller.
        return unsafe { neon.run(PairGemm(neon, gemm)) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { isa.run(gemm) }
}

/// Returns the lines to prefetch while a unit of P panels, from panel p on, is computed: the unit that is decoded next.
/// It is at byte `next` of these panels, or the first unit of the next panels. The next panels may belong to the
/// thread's next call. Assumes that the next unit has the same length.
#[inline(always)]
pub(super) fn after<const P: usize>(args: &Gemm, p: usize, next: Option<usize>, unit_bytes: usize) -> Ahead {
    let base = args.panels.wrapping_add(p * args.panel_bytes + next.unwrap_or(P * args.panel_bytes));
    Ahead::new::<P>(base, args.panel_bytes, unit_bytes, true)
}

/// Prefetches the output lines for the products of rows of x with P panels, from panel p on.
#[inline(always)]
pub(super) fn prefetch_out<S: Simd, const P: usize>(s: S, args: &Gemm, p: usize, rows: Range<usize>) {
    for t in rows {
        let row = args.out.wrapping_add((t - args.from) * args.ldo + p * S::LANES);
        for line in (0..P * S::LANES).step_by(16) {
            s.prefetch_write(row.wrapping_add(line).cast());
        }
    }
}

/// Returns `p` and hides from the optimizer how it was computed. Otherwise the optimizer would address one stream
/// relative to another. x86 splits a multiply-add in two if its memory operand has two address registers.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // the assembly does not read the memory at `p`
#[cfg_attr(miri, allow(unused_mut))]
pub(crate) fn opaque<T>(mut p: *const T) -> *const T {
    // Miri does not support assembly.
    #[cfg(not(any(miri, target_arch = "wasm32")))]
    // SAFETY: the assembly has no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags))
    }
    #[cfg(target_arch = "wasm32")]
    // SAFETY: the assembly has no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(local) p, options(pure, nomem, nostack, preserves_flags))
    }
    p
}

/// Calls `finish` for rows of x; `acc` has room for M rows. The sums go through memory, so that one copy of the code
/// serves all rows.
///
/// # Safety
/// As `finish`.
#[inline(always)]
pub(super) unsafe fn finish_tile<S: Simd, const M: usize>(
    s: S,
    args: &Gemm,
    acc: &[S::F; M],
    rows: Range<usize>,
    row: usize,
) {
    unsafe {
        let mut sums = [[0f32; 16]; M];
        unroll16!(I => if I < M { s.store(sums[I].as_mut_ptr(), acc[I]) });
        for (sums, t) in sums.iter().zip(std::hint::black_box(rows)) {
            finish(s, args, s.load(sums.as_ptr()), t, row);
        }
    }
}

/// Calls `finish` for rows of x and P panels, from panel p on. Their sums are at `sums`: [row][panel], with LANES rows
/// of W in the lanes.
///
/// # Safety
/// As `finish`.
#[inline(always)]
pub(super) unsafe fn finish_rows<S: Simd, const P: usize>(
    s: S,
    args: &Gemm,
    sums: *const f32,
    p: usize,
    rows: Range<usize>,
) {
    for (i, t) in rows.enumerate() {
        for j in 0..P {
            unsafe { finish(s, args, s.load(sums.add((i * P + j) * S::LANES)), t, (p + j) * S::LANES) }
        }
    }
}

/// Adds the bias, applies the epilogue and stores the result for one row of x and one panel.
///
/// # Safety
/// Row t and panel row `row` are within `args`.
#[inline(always)]
unsafe fn finish<S: Simd>(s: S, args: &Gemm, sums: S::F, t: usize, row: usize) {
    unsafe {
        let out = args.out.add((t - args.from) * args.ldo + row);
        let bias = if args.bias.is_null() { args.bias } else { args.bias.add(row) };
        let left = args.rows - row;
        if left >= S::LANES {
            return complete(s, args.epilogue, sums, bias, out);
        }
        // A partial panel is computed in the same way, on copies padded to a whole vector.
        let (mut y, mut b) = ([0f32; 16], [0f32; 16]);
        std::ptr::copy_nonoverlapping(out, y.as_mut_ptr(), left);
        if !bias.is_null() {
            std::ptr::copy_nonoverlapping(bias, b.as_mut_ptr(), left);
        }
        complete(s, args.epilogue, sums, if bias.is_null() { bias } else { b.as_ptr() }, y.as_mut_ptr());
        std::ptr::copy_nonoverlapping(y.as_ptr(), out, left);
    }
}

#[inline(always)]
unsafe fn complete<S: Simd>(s: S, epilogue: Epilogue, sums: S::F, bias: *const f32, out: *mut f32) {
    unsafe {
        let mut y = sums;
        if !bias.is_null() {
            y = s.add(y, s.load(bias));
        }
        if let Epilogue::Add(times) = epilogue {
            y = s.fma(s.splat(times), y, s.load(out));
        }
        s.store(out, y);
    }
}
