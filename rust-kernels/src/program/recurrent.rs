//! The shape of what sequences carry from token to token beside the KV cache.
use crate::bail;
use crate::error::{Error, Result};
use crate::ops::delta_rule::MAX_DIM;
use crate::ops::short_conv::TAPS;

/// Heads of the recurrent ops: value head h reads key head h % key_heads.
#[derive(Clone, Copy)]
pub struct DeltaHeads {
    /// Among the layers that have a state.
    pub layer: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub head_dim: usize,
}

impl DeltaHeads {
    /// Queries, keys and values of a row.
    pub fn channels(&self) -> usize {
        self.heads() * self.head_dim
    }

    /// Heads of queries, keys and values.
    pub fn heads(&self) -> usize {
        2 * self.key_heads + self.value_heads
    }
}

/// What sequences carry from token to token in layers without a KV cache: a slot for each sequence, and in it, layer by
/// layer, the convolution's last inputs [head][TAPS - 1][head_dim], then a matrix [head_dim][head_dim] a value head.
#[derive(Clone, Copy)]
pub struct RecurrentShape {
    pub layers: usize,
    pub heads: DeltaHeads,
    pub slots: usize,
}

impl RecurrentShape {
    /// Floats of a layer's inputs of the convolution.
    pub fn conv_floats(&self) -> usize {
        (TAPS - 1) * self.heads.channels()
    }

    /// Floats of a layer in a slot.
    pub fn layer_floats(&self) -> usize {
        self.conv_floats() + self.heads.value_heads * self.heads.head_dim * self.heads.head_dim
    }

    /// Bytes of all slots. Refuses heads that the kernels cannot hold, and sizes beyond all memory.
    pub(super) fn bytes(&self) -> Result<usize> {
        let h = &self.heads;
        if self.layers == 0 {
            return Ok(0);
        }
        let fits = h.head_dim.is_multiple_of(32) && (32..=MAX_DIM).contains(&h.head_dim);
        if !fits || h.key_heads == 0 || !h.value_heads.is_multiple_of(h.key_heads) || h.value_heads > 1 << 16 {
            bail!("recurrent heads: {} over {} of {} are not supported", h.value_heads, h.key_heads, h.head_dim);
        }
        let bytes = [self.layers, self.slots, 4].iter().try_fold(self.layer_floats(), |n, m| n.checked_mul(*m));
        bytes.ok_or_else(|| Error::new(format!("{} recurrent states are beyond all memory", self.slots)))
    }
}

impl RecurrentShape {
    /// Floats of a slot.
    pub fn slot_floats(&self) -> usize {
        self.layers * self.layer_floats()
    }

    /// Floats from a slot's start to a layer's states.
    pub fn layer_offset(&self, layer: usize) -> usize {
        layer * self.layer_floats()
    }
}
