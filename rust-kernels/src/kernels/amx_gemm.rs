//! Matrix products of many rows on AMX. Its registers sum a block's products of 16 rows of x with 16 rows of W. The
//! sums go through memory in the first-level cache. Vectors scale and add them in the same order as all other
//! kernels, so the results are bit-identical.
//!
//! Three steps overlap: scaling a block's sums, storing the next block's sums, and the products of the third block
//! after it. A store that waits for its products delays everything behind it (docs/lab/2026-11.md, A Xeon with AMX).
use super::gemm::{BlockGemm, Gemm, after, finish_rows, prefetch_out};
use super::quant_rows::row_bytes;
use super::scaling::{FACTORS, Factors, Tokens};
use super::wide_gemm::{CHUNK, CODE_BYTES, Codes, Operand, Sums, Unit, decode_factors};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::amx::{Amx, ROW_BYTES, ROWS, SUM_REGISTERS, Vectors, W, X};
use crate::simd::{BIAS_BITS, Kernel, Pace, Simd};
use crate::unroll16;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Panels that are decoded together, so that each load of x serves both.
const PANELS: usize = 2;
/// Number of sum registers that blocks use in turn. One more register is for the remaining blocks.
const SUMS: usize = SUM_REGISTERS - 1;
const SPARE: usize = SUMS;
/// Parts of a tile. Loads, products and stores are placed between them.
const QUARTERS: usize = 4;

/// Sums of some blocks' products: [block][row of x], rows of W in the lanes.
#[repr(C, align(64))]
struct Dots([[[i32; ROWS]; ROWS]; SUM_REGISTERS]);

/// A call's operands and working memory.
struct Call<'a> {
    amx: Amx,
    args: &'a Gemm,
    x: Operand<'a>,
    unit: *mut Unit,
    dots: *mut Dots,
    /// [row of x][panel], rows of W in the lanes.
    sums: *mut f32,
}

/// Whether AMX is faster than AVX-512. For 16 rows, AVX-512 takes as long as AMX with one tile of x. For 24 rows it
/// is two tiles, for 32 rows three (docs/lab/2026-11.md, A Xeon with AMX).
pub fn pays(rows: usize) -> bool {
    2 * rows >= (rows.div_ceil(ROWS) + 1) * ROWS
}

/// `BlockGemm` for tiles of 16 rows of x and formats with one scale per block. It uses AVX-512 for vectors.
pub struct AmxGemm<'a, F>(pub Amx, pub BlockGemm<'a, F>);

impl<F: BlockFormat> Kernel for AmxGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        let Self(amx, BlockGemm { args, x, corrections, .. }) = self;
        let (mut unit, mut dots) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let mut sums = MaybeUninit::<Sums>::uninit();
        let (unit, dots, sums) = (unit.as_mut_ptr(), dots.as_mut_ptr(), sums.as_mut_ptr().cast());
        let call = Call { amx, args, x: Operand { x, corrections }, unit, dots, sums };
        let panels = args.rows.div_ceil(ROWS);
        amx.shape(BLOCK);
        for from in (args.from..args.to).step_by(CHUNK) {
            let rows = from..args.to.min(from + CHUNK);
            // SAFETY: the panels and rows are within `args`; no other call uses the memory.
            unsafe {
                for p in (0..panels / PANELS * PANELS).step_by(PANELS) {
                    call.panels::<F, PANELS>(p, rows.clone());
                }
                for p in panels / PANELS * PANELS..panels {
                    call.panels::<F, 1>(p, rows.clone());
                }
            }
        }
        amx.release();
    }
}

impl Call<'_> {
    /// P panels from panel p times at most CHUNK rows of x.
    #[inline(always)]
    unsafe fn panels<F: BlockFormat, const P: usize>(&self, p: usize, rows: Range<usize>) {
        let &Self { amx, args, unit, dots, .. } = self;
        let tiles = rows.len().div_ceil(ROWS);
        let mut at = 0;
        for start in (0..args.columns).step_by(UNIT) {
            unsafe {
                let panels = args.panels.add(p * args.panel_bytes + at);
                let blocks = ((args.columns - start) / BLOCK).min(UNIT_BLOCKS);
                let codes = decode::<F, P>(amx, panels, args.panel_bytes, blocks, unit);
                let (scale_bytes, code_bytes) = F::unit_layout(blocks, ROWS);
                at += scale_bytes + code_bytes;
                let next = (start + UNIT < args.columns).then_some(at);
                let ahead = after::<P>(args, p, next, scale_bytes + code_bytes).over(tiles * P * blocks);
                self.unit::<F, P>(&mut Beside { amx, blocks, dots, ahead }, &codes, p, rows.clone(), start);
            }
        }
    }

    /// A unit of these panels, from column `start` on.
    #[inline(always)]
    unsafe fn unit<F: BlockFormat, const P: usize>(
        &self,
        beside: &mut Beside,
        codes: &Codes,
        p: usize,
        rows: Range<usize>,
        start: usize,
    ) {
        let (s, args, x) = (self.amx.vectors(), self.args, &self.x);
        let (tile_bytes, last) = (ROWS * row_bytes(args.columns), start + UNIT >= args.columns);
        for t in rows.clone().step_by(ROWS) {
            unsafe {
                let tile_rows = t..rows.end.min(t + ROWS);
                if last {
                    prefetch_out::<Vectors, P>(s, args, p, tile_rows.clone());
                }
                let tokens = Tokens::of_width::<F>(ROWS, x.x, x.corrections, t, start / BLOCK);
                let sums = self.sums.add((t - rows.start) * P * ROWS);
                for j in 0..P {
                    let here = Place { x: tokens.codes.cast(), w: codes.base.wrapping_add(j * codes.panel) };
                    let next = match (j + 1 < P, tile_rows.end < rows.end) {
                        (true, _) => Place { w: here.w.wrapping_add(codes.panel), ..here },
                        (_, true) => Place { x: here.x.wrapping_add(tile_bytes), w: codes.base },
                        _ => Place::NONE,
                    };
                    if t == rows.start && j == 0 {
                        beside.start(here);
                    }
                    let factors = (&raw const (*self.unit).factors[j]).cast();
                    let tile = Tile { sums: [s.splat(0.0); ROWS], factors, x: tokens };
                    add::<F, P>(beside, here, next, tile, sums.add(j * ROWS), start == 0);
                }
                if last {
                    finish_rows::<Vectors, P>(s, args, sums, p, tile_rows);
                }
            }
        }
    }
}

/// Decodes a unit of P panels to signed codes, whose sums need no correction.
///
/// # Safety
/// The panels hold `blocks` blocks; `to` has room.
#[inline(always)]
unsafe fn decode<F: BlockFormat, const P: usize>(
    amx: Amx,
    unit: *const u8,
    panel_bytes: usize,
    blocks: usize,
    to: *mut Unit,
) -> Codes {
    let s = amx.vectors();
    for j in 0..P {
        for b in 0..blocks {
            unsafe {
                let unit = unit.add(j * panel_bytes);
                decode_factors::<Vectors, F>(s, unit, [blocks, b], &raw mut (*to).factors[j][b]);
                let (w, codes) = (F::codes(s, unit, blocks, b), Codes::decoded(to, j, b));
                for g in 0..8 {
                    s.b_store(codes.add(ROW_BYTES * g), amx.signed(w[g], F::OFFSET));
                }
            }
        }
    }
    Codes::of_unit(to)
}

/// A tile of x and a panel's codes, both from the same block on.
#[derive(Clone, Copy)]
struct Place {
    x: *const u8,
    w: *const u8,
}

impl Place {
    const NONE: Self = Self { x: std::ptr::null(), w: std::ptr::null() };

    /// The place `b` blocks further on. NONE stays NONE.
    #[inline(always)]
    fn block(self, b: usize) -> Self {
        if self.x.is_null() {
            return self;
        }
        Self { x: self.x.wrapping_add(b * ROWS * BLOCK), w: self.w.wrapping_add(b * CODE_BYTES) }
    }
}

/// State of the work that overlaps with scaling a unit's sums.
struct Beside {
    amx: Amx,
    blocks: usize,
    dots: *mut Dots,
    ahead: Pace,
}

impl Beside {
    /// Starts the products of a unit's first blocks, if the unit has at least SUMS blocks.
    #[inline(always)]
    unsafe fn start(&self, at: Place) {
        if self.blocks >= SUMS {
            unsafe {
                self.begin::<0>(at);
                self.begin::<1>(at.block(1));
                self.begin::<2>(at.block(2));
                self.store::<0>();
            }
        }
    }

    /// Starts a block's products in register T.
    #[inline(always)]
    unsafe fn begin<const T: usize>(&self, at: Place) {
        if at.x.is_null() {
            return;
        }
        unsafe {
            self.amx.load::<X>(at.x, BLOCK);
            self.amx.load::<W>(at.w, ROW_BYTES);
            self.amx.multiply::<T>();
        }
    }

    /// Stores the sums in register T.
    #[inline(always)]
    unsafe fn store<const T: usize>(&self) {
        unsafe { self.amx.store::<T>(&raw mut (*self.dots).0[T]) }
    }
}

/// A tile's sums with one panel.
struct Tile {
    sums: [<Vectors as Simd>::F; ROWS],
    factors: *const f32,
    x: Tokens,
}

/// Adds the scaled products of a unit's blocks with a tile of x to `sums`, whose rows are P vectors apart. With
/// `start` it overwrites `sums`. Blocks use the registers of sums in turn. On entry the products of the first SUMS -
/// 1 blocks of `here` have started, and the sums of the first are stored. On return the same holds for `next`. The
/// blocks beyond a multiple of SUMS are computed one by one.
#[inline(always)]
unsafe fn add<F: BlockFormat, const P: usize>(
    beside: &mut Beside,
    mut here: Place,
    next: Place,
    mut tile: Tile,
    sums: *mut f32,
    start: bool,
) {
    let s = beside.amx.vectors();
    unsafe {
        if !start {
            unroll16!(I => tile.sums[I] = s.load(sums.add(I * P * ROWS)));
        }
        for left in (1..=beside.blocks / SUMS).rev() {
            let next = if left > 1 { here.block(SUMS) } else { next };
            block::<F, P, 0, 1, 3>(beside, here.block(3), &mut tile);
            block::<F, P, 1, 2, 0>(beside, next, &mut tile);
            block::<F, P, 2, 3, 1>(beside, next.block(1), &mut tile);
            block::<F, P, 3, 0, 2>(beside, next.block(2), &mut tile);
            here = here.block(SUMS);
        }
        for b in 0..beside.blocks % SUMS {
            beside.begin::<SPARE>(here.block(b));
            beside.store::<SPARE>();
            block::<F, P, SPARE, SPARE, SPARE>(beside, Place::NONE, &mut tile);
        }
        unroll16!(I => s.store(sums.add(I * P * ROWS), tile.sums[I]));
    }
}

/// Adds the stored sums of register T. Meanwhile stores the sums of register STORED and starts the products of
/// register BEGUN.
#[inline(always)]
unsafe fn block<F: BlockFormat, const P: usize, const T: usize, const STORED: usize, const BEGUN: usize>(
    beside: &mut Beside,
    next: Place,
    tile: &mut Tile,
) {
    unsafe {
        let w = Factors::load::<F>(beside.amx.vectors(), tile.factors);
        let dots = (&raw const (*beside.dots).0[T]).cast();
        beside.ahead.step::<Vectors, P>(beside.amx.vectors());
        quarter::<F, P, 0>(beside, &w, dots, tile);
        beside.begin::<BEGUN>(next);
        quarter::<F, P, 1>(beside, &w, dots, tile);
        if STORED != T {
            beside.store::<STORED>();
        }
        quarter::<F, P, 2>(beside, &w, dots, tile);
        quarter::<F, P, 3>(beside, &w, dots, tile);
        tile.factors = tile.factors.add(2 * FACTORS * ROWS);
        tile.x.next();
    }
}

/// Adds the sums of quarter Q of a tile's rows.
#[inline(always)]
unsafe fn quarter<F: BlockFormat, const P: usize, const Q: usize>(
    beside: &mut Beside,
    w: &Factors<Vectors>,
    dots: *const u8,
    tile: &mut Tile,
) {
    let s = beside.amx.vectors();
    unroll16!(I => if I / (ROWS / QUARTERS) == Q {
        unsafe {
            let sum = s.i_add(s.i_splat(BIAS_BITS), s.b_load(dots.add(I * ROW_BYTES)));
            tile.sums[I] = tile.x.add::<Vectors, F>(s, w, sum, 0, I, tile.sums[I]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pays_only_for_nearly_full_tiles() {
        let taken: Vec<_> = (1..=ROWS * 20).filter(|rows| pays(*rows)).collect();
        assert_eq!(taken, [16].into_iter().chain(24..=ROWS * 20).collect::<Vec<_>>());
    }
}
