//! Distributes the panels of a matrix product among threads, in whole register tiles of its kernel.
use super::float_gemm;
use super::gemm::wide_tokens;
use super::wide_gemm::CHUNK;
use crate::formats::{BLOCK, FormatKernels};
use crate::program::ROW_ROUND;
use crate::simd::Isa;
use std::ops::Range;

/// Maximum number of panels that a thread takes at a time for many tokens. They fit in a core's L2 cache.
const MOST_PANELS: usize = 15;

/// Returns the number of panels in a register tile of a format's kernels for m tokens.
fn tile_panels(isa: Isa, format: &FormatKernels, m: usize) -> usize {
    match format {
        FormatKernels::Block(k) if m < wide_tokens(isa, k.decoding) => 1,
        FormatKernels::Block(_) => isa.panels(),
        FormatKernels::Float(_) if m < float_gemm::TILE_TOKENS => 1,
        FormatKernels::Float(_) if m < float_gemm::WIDE_TOKENS => float_gemm::THIN_PANELS,
        FormatKernels::Float(_) => isa.float_panels(),
    }
}

/// Whether the kernel reads its panels again after each group of tokens.
fn is_read_again(isa: Isa, format: &FormatKernels, m: usize) -> bool {
    match format {
        FormatKernels::Block(k) => m > CHUNK && m >= wide_tokens(isa, k.decoding),
        FormatKernels::Float(_) => m >= float_gemm::WIDE_TOKENS,
    }
}

/// The panels of a matrix, grouped into tiles. The last tile may have fewer panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    pub panels: usize,
    /// Number of panels in a tile.
    pub tile: usize,
    /// Maximum number of tiles that a thread takes at a time.
    pub most: usize,
}

impl Tiles {
    /// Groups `panels` panels into tiles. `share` is the op's number of panels per thread. A tile is never wider, so
    /// that every thread gets work.
    pub fn new(isa: Isa, format: &FormatKernels, panels: usize, m: usize, share: usize) -> Self {
        let tile = tile_panels(isa, format, m).min(share).max(1);
        Self { panels, tile, most: if is_read_again(isa, format, m) { MOST_PANELS / tile } else { usize::MAX } }
    }

    pub fn count(&self) -> usize {
        self.panels.div_ceil(self.tile)
    }

    /// Returns the panels of some tiles.
    pub fn panels_of(&self, tiles: Range<usize>) -> Range<usize> {
        tiles.start * self.tile..(tiles.end * self.tile).min(self.panels)
    }
}

/// Returns the total number of tiles of several matrices, and the maximum number that a thread takes at a time.
pub fn runs(parts: impl Iterator<Item = Tiles>) -> (usize, usize) {
    let (total, most) = parts.fold((0, usize::MAX), |(n, most), t| (n + t.count(), most.min(t.most)));
    (total, most.max(1))
}

/// Number of runs of tiles per thread and op. With this number the last runs still keep all threads busy.
const RUNS: usize = 8;
/// Minimum number of rows of x that justifies decoding a panel once more.
const CUT_ROWS: usize = 128;

/// Returns the number of parts into which the m rows of x are split if a product has only `runs` runs of tiles.
pub fn cuts(m: usize, runs: usize, threads: usize) -> usize {
    (RUNS * threads).div_ceil(runs.max(1)).min(m / CUT_ROWS).max(1)
}

/// Returns the rows of part `cut` if m rows are split into `cuts` parts. Each part starts with a whole tile of rows.
pub fn cut_rows(m: usize, cut: usize, cuts: usize) -> Range<usize> {
    let rows = m.div_ceil(cuts).next_multiple_of(ROW_ROUND);
    (cut * rows).min(m)..((cut + 1) * rows).min(m)
}

/// Returns the unit in which the rows of two matrices are distributed among threads. It is a multiple of a block of the
/// result and of both matrices' tiles. If there are too few rows for all threads, it is one block.
pub fn whole_blocks(isa: Isa, matrices: [&FormatKernels; 2], rows: usize, m: usize, threads: usize) -> usize {
    let step =
        matrices.iter().fold(BLOCK, |step, format| common_multiple(step, tile_panels(isa, format, m) * isa.lanes()));
    if rows < step * threads { BLOCK } else { step }
}

fn common_multiple(a: usize, b: usize) -> usize {
    (1..=b).map(|n| n * a).find(|n| n.is_multiple_of(b)).unwrap_or(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{Decoding, format};
    use crate::pool::Items;
    use std::sync::atomic::AtomicUsize;

    const F16: u32 = 1;
    const Q4_0: u32 = 2;

    /// Returns the number of panels in each run of a single matrix.
    fn lengths(tiles: Tiles, threads: usize) -> Vec<usize> {
        let (total, most) = runs([tiles].into_iter());
        let next = AtomicUsize::new(0);
        Items::tapering(&next, total, [1, most], threads).map(|run| tiles.panels_of(run).len()).collect()
    }

    #[test]
    fn runs_fill_the_register_tiles_of_their_format_on_many_threads() {
        for isa in Isa::available() {
            for (id, m, tile) in [
                (F16, 12, float_gemm::THIN_PANELS),
                (F16, 13, isa.float_panels()),
                (F16, 512, isa.float_panels()),
                (Q4_0, 16, 1),
                (Q4_0, 512, if wide_tokens(isa, Decoding::Fast) > 512 { 1 } else { isa.panels() }),
            ] {
                let format = &format(id).expect("registered").kernels;
                for threads in [1, 2, 8, 16] {
                    let panels = 16 * 12;
                    let lengths = lengths(Tiles::new(isa, format, panels, m, panels / threads), threads);
                    assert_eq!(lengths.iter().sum::<usize>(), panels);
                    let whole = lengths.iter().all(|n| n.is_multiple_of(tile));
                    assert!(whole, "{}, type {id}, {m} tokens, {threads} threads: {lengths:?}", isa.name());
                }
            }
        }
    }

    #[test]
    fn cuts_split_rows_when_panels_are_too_few_for_all_threads() {
        assert_eq!(cuts(512, 22, 2), 1);
        assert_eq!(cuts(512, 22, 16), 4);
        assert_eq!(cuts(64, 22, 16), 1);
        assert_eq!(cuts(512, 4096, 16), 1);
        for (m, cuts) in [(512, 4), (512, 3), (500, 3), (129, 1), (130, 2)] {
            let parts: Vec<_> = (0..cuts).map(|cut| cut_rows(m, cut, cuts)).collect();
            assert!(parts.iter().all(|part| part.start.is_multiple_of(ROW_ROUND) && part.len() <= m));
            assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), (0..m).collect::<Vec<_>>());
        }
    }

    #[test]
    fn tiles_give_every_thread_a_panel_when_there_are_enough() {
        for isa in Isa::available() {
            for id in [F16, Q4_0] {
                let format = &format(id).expect("registered").kernels;
                let lengths = lengths(Tiles::new(isa, format, 64, 512, 1), 64);
                assert_eq!(lengths, [1; 64], "{}, type {id}", isa.name());
            }
        }
    }

    #[test]
    fn whole_blocks_are_whole_tiles_of_both_matrices() {
        for isa in Isa::available() {
            for (ids, m) in [([F16; 2], 512), ([Q4_0; 2], 512), ([F16, Q4_0], 512), ([F16; 2], 8), ([Q4_0; 2], 1)] {
                let formats = ids.map(|id| &format(id).expect("registered").kernels);
                let step = whole_blocks(isa, formats, 1 << 20, m, 16);
                assert!(step.is_multiple_of(BLOCK) && step <= 192, "{}: {step}", isa.name());
                for format in formats {
                    assert!(
                        step.is_multiple_of(tile_panels(isa, format, m) * isa.lanes()),
                        "{}, {m} tokens: {step}",
                        isa.name()
                    );
                }
            }
        }
    }
}
