//! Keys in 6 bits. The codes of SCALED dimensions and LANES positions form two planes, as in formats/planes.rs: the
//! upper 2 bits in 2 vectors, then the lower 4 bits in 4 vectors. Positions are in the lanes:
//! [KV_BLOCK / LANES][head_dim / SCALED][6][LANES][4 dimensions].
use super::{SCALED, padded, scale_index};
use crate::formats::planes;
use crate::kernels::kv::FloatMatrix;
use crate::kernels::quant_rows::QuantRows;
use crate::simd::{Ahead, Simd};

/// Number of bits in each plane of a code.
const LOW: usize = 4;
const HIGH: usize = 2;
pub const KEY_BITS: u32 = (LOW + HIGH) as u32;
/// A code stands for the number code - OFFSET.
pub const OFFSET: i32 = 1 << (KEY_BITS - 1);

/// Returns the byte index of the vectors that hold code d of the key in `slot` of its block.
#[inline(always)]
pub const fn part(lanes: usize, head_dim: usize, d: usize, slot: usize) -> usize {
    (slot / lanes * (padded(head_dim) / SCALED) + d / SCALED) * planes::plane_bytes(LOW + HIGH, lanes)
}

/// Writes SCALED codes of one key to their vectors.
///
/// # Safety
/// `part` holds the vectors of SCALED dimensions.
#[inline(always)]
pub unsafe fn put(lanes: usize, part: *mut u8, slot: usize, codes: &[u8; SCALED]) {
    let (groups, _) = codes.as_chunks::<4>();
    // SAFETY: guaranteed by the caller.
    let write = |vector: usize, four: [u8; 4]| unsafe {
        part.add((vector * lanes + slot % lanes) * 4).cast::<[u8; 4]>().write_unaligned(four);
    };
    for v in 0..HIGH {
        write(v, std::array::from_fn(|c| (0..4).map(|i| groups[v + HIGH * i][c] >> LOW << (HIGH * i)).sum()));
    }
    for v in 0..LOW {
        write(HIGH + v, std::array::from_fn(|c| groups[v][c] & 15 | groups[v + LOW][c] << LOW));
    }
}

/// Operands for the products of query rows with LANES keys of a block, from position `slot` on.
pub(super) struct KeyTile {
    pub x: QuantRows,
    pub row: usize,
    pub keys: *const u8,
    pub slot: usize,
    pub head_dim: usize,
    /// Distance in bytes to the data that is read next; None if another tile prefetches that data.
    pub ahead: Option<isize>,
}

impl KeyTile {
    /// Computes the products of N queries with LANES keys; returns N.
    ///
    /// # Safety
    /// The rows and positions exist.
    #[inline(always)]
    pub unsafe fn products<S: Simd, const N: usize>(&self, s: S, out: FloatMatrix) -> usize {
        unsafe {
            let mut sums = [s.splat(0.0); N];
            for b in 0..padded(self.head_dim) / SCALED {
                let meta = self.x.meta(0, b, self.row);
                let codes = self.keys.add(part(S::LANES, self.head_dim, b * SCALED, self.slot));
                self.prefetch_next(s, codes, b);
                let w = planes::groups!(G => planes::get_split::<S, LOW, HIGH, G>(s, codes));
                let mut acc = std::array::from_fn(|i| s.i_splat(*meta.add(self.x.tile + i).cast::<i32>()));
                let x = self.x.codes(0, b, self.row);
                s.dot32_rows::<KEY_BITS, N>(&mut acc, w, x, Ahead::NOTHING);
                let scale =
                    s.load_f16(self.keys.add(scale_index(KEY_BITS, self.head_dim, b * SCALED, self.slot)).cast());
                for i in 0..N {
                    let product = s.mul(s.i_to_f(acc[i]), scale);
                    sums[i] = s.fma(product, s.splat(*meta.add(i)), sums[i]);
                }
            }
            for (i, sum) in sums.iter().enumerate() {
                s.store(out.row(i), *sum);
            }
            N
        }
    }

    /// Prefetches the cache lines `ahead` bytes after the codes of SCALED columns, and those `ahead` bytes after the
    /// scales.
    #[inline(always)]
    fn prefetch_next<S: Simd>(&self, s: S, codes: *const u8, b: usize) {
        let Some(ahead) = self.ahead else { return };
        for line in (0..planes::plane_bytes(KEY_BITS as usize, S::LANES)).step_by(64) {
            s.prefetch_l2(codes.wrapping_add(line).wrapping_offset(ahead));
        }
        if self.slot == 0 {
            let scales = scale_index(KEY_BITS, self.head_dim, b * SCALED, 0);
            s.prefetch_l2(self.keys.wrapping_add(scales).wrapping_offset(ahead));
        }
    }
}
