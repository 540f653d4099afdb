//! Copies whole KV blocks and recurrent states out of a model and back, between steps.
use crate::bail;
use crate::error::Result;
use crate::program::Program;
use crate::words::Words;

/// One part of a copy of the cache: a KV block or a slot of recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A KV block of a group of layers. The pairs hold keys, then values: the first byte in their memory (`at`), and
    /// the number of `bytes`.
    Kv { at: [usize; 2], bytes: [usize; 2] },
    /// A slot of recurrent state, which starts at byte `at`.
    State { at: usize, bytes: usize },
}

impl Part {
    /// Returns the number of bytes that this part takes in a copy.
    pub fn len(&self) -> usize {
        match *self {
            Self::Kv { bytes, .. } => bytes[0] + bytes[1],
            Self::State { bytes, .. } => bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Decodes the parts of a copy: the numbers of blocks and slots, a group and a block for each block, then the slots.
/// Every index is checked. engine/backend/cpu/cpu.ts writes these words. Also returns the bytes of `message` behind
/// them.
///
/// # Errors
/// The words name a group, block or slot that the program does not have.
pub fn decode<'a>(message: &'a [u8], p: &Program) -> Result<(Vec<Part>, &'a [u8])> {
    let mut w = Words::new(message);
    let (blocks, slots) = (w.size()?, w.size()?);
    let named = w.u32s(blocks.saturating_mul(2).saturating_add(slots))?;
    let mut parts = Vec::with_capacity(blocks + slots);
    let (pairs, slots) = named.split_at(2 * blocks);
    for pair in pairs.chunks_exact(2) {
        let (group, block) = (pair[0] as usize, pair[1] as usize);
        let Some(&bytes) = p.kv.group_bytes.get(group) else {
            bail!("The group of a KV block must be below {} (got {group})", p.kv.group_bytes.len());
        };
        if block >= p.kv.blocks {
            bail!("A KV block must be below {} (got {block})", p.kv.blocks);
        }
        parts.push(Part::Kv { at: p.kv.block_bytes.map(|bytes| block * bytes), bytes });
    }
    for &slot in slots {
        if slot as usize >= p.recurrent.slots {
            bail!("A slot of recurrent state must be below {} (got {slot})", p.recurrent.slots);
        }
        let bytes = 4 * p.recurrent.slot_floats;
        parts.push(Part::State { at: slot as usize * bytes, bytes });
    }
    Ok((parts, &message[8 + 4 * named.len()..]))
}

/// Returns the total bytes of all parts; usize::MAX on overflow.
pub fn total(parts: &[Part]) -> usize {
    parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()))
}
