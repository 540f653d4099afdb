//! Each thread's own working memory.
use crate::memory::Region;
use crate::ops::gemm::corrections_len;
use crate::ops::{attention, delta_rule};
use crate::program::{Kind, Program, ROW_ROUND};

/// Rows and columns of the tile that SwiGLU keeps gate and up in.
pub const SWIGLU_ROWS: usize = 128;
pub const SWIGLU_COLUMNS: usize = 288;
/// A thread's scratch memory, in floats.
pub struct Scratch {
    pub corrections: *mut f32,
    pub row: *mut f32,
    pub gate: *mut f32,
    pub up: *mut f32,
    pub attention: *mut f32,
    pub delta: *mut f32,
}

impl Scratch {
    fn sizes(p: &Program) -> [usize; 6] {
        let columns = p.buffers.iter().map(|b| b.columns).max().unwrap_or(0);
        let planes = if p.buffers.iter().any(|b| b.kind == Kind::Fine) { 2 } else { 1 };
        let most = planes * p.max_rows.max(p.max_logit_rows).next_multiple_of(ROW_ROUND);
        let tile = SWIGLU_ROWS * SWIGLU_COLUMNS;
        let (attention, delta) =
            (attention::scratch_len(p.kv.kind, p.kv.head_dim), delta_rule::scratch_len(p.recurrent.heads.head_dim));
        let sizes = [corrections_len(most, columns, ROW_ROUND), columns, tile, tile, attention, delta];
        sizes.map(|n| n.next_multiple_of(16) + 16)
    }

    pub fn floats(p: &Program) -> usize {
        Self::sizes(p).iter().sum()
    }

    pub fn new(p: &Program, region: &Region) -> Self {
        let mut at = 0;
        let [corrections, row, gate, up, attention, delta] = Self::sizes(p).map(|n| {
            at += n;
            region.at(4 * (at - n)).cast()
        });
        Self { corrections, row, gate, up, attention, delta }
    }
}
