//! Op: normalizes and rotates (RoPE) heads of queries, keys or values in place, without a KV cache.
use super::rope_append::{NormAndRotate, RopeShape};
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{HeadPlace, Operands};

pub struct Rotate {
    x: usize,
    place: HeadPlace,
    heads: usize,
    /// Buffer with the rotation angles of each row; None if heads are only normalized.
    table: Option<usize>,
    norm: Option<usize>,
    rope: RopeShape,
}

impl Decode for Rotate {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, place, heads, head_dim) = (o.step_float(None)?, o.head_place()?, o.size()?, o.size()?);
        let (table, norm) = (o.optional()?, o.optional()?);
        let (rotated, interleaved, eps, unweighted) = (o.size()?, o.flag()?, o.f32()?, o.flag()?);
        o.heads_within(x, place, heads, head_dim)?;
        o.angles(table, rotated, head_dim)?;
        if let Some(norm) = norm {
            o.vector(norm, head_dim)?;
        }
        Ok(Self {
            x,
            place,
            heads,
            table,
            norm,
            rope: RopeShape { head_dim, rotated, interleaved, eps, norm_last: false, unweighted },
        })
    }
}

impl Op for Rotate {
    fn run(&self, run: &Run, work: &Work) {
        let dim = self.rope.head_dim;
        let weight = self.norm.map_or(std::ptr::null(), |norm| run.vector(norm, dim));
        for row in work.items(run.tokens()).flatten() {
            let table = self.table.map_or(std::ptr::null_mut(), |table| run.float(table, row));
            for head in 0..self.heads {
                // SAFETY: decoding checked heads, norm and table.
                unsafe {
                    let x = run.float(self.x, row).add(self.place.column + head * self.place.step);
                    run.isa.run(NormAndRotate { x, weight, table, shape: &self.rope });
                }
            }
        }
    }
}
