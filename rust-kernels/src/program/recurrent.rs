//! The shape of what sequences carry from token to token beside the KV cache.
use crate::bail;
use crate::error::Result;
use crate::ops::delta_rule::MAX_DIM;
use crate::ops::short_conv::TAPS;
use crate::words::Words;

/// Channels of a convolution, and heads, rows and columns of matrices, at most: their products stay below 2^64.
const MOST: usize = 1 << 20;

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

    /// Refuses heads that the kernels cannot hold, and those of another state.
    pub(super) fn check(&self, state: &StateLayer) -> Result<()> {
        let Self { layer, key_heads, value_heads, head_dim } = *self;
        let dim = head_dim.is_multiple_of(32) && (32..=MAX_DIM).contains(&head_dim);
        let grouped = key_heads > 0 && key_heads <= value_heads && value_heads.is_multiple_of(key_heads);
        if !dim || !grouped || value_heads > MOST {
            bail!("recurrent heads: {value_heads} over {key_heads} of {head_dim} are not supported");
        }
        let wanted = [self.channels(), TAPS - 1, value_heads, head_dim, head_dim];
        if [state.channels, state.inputs, state.heads, state.rows, state.columns] != wanted {
            bail!("{value_heads} heads over {key_heads} of {head_dim} do not fit the state of layer {layer}");
        }
        Ok(())
    }
}

/// What a layer carries: the last inputs of a convolution, then a matrix [rows][columns] a head. Either may be nothing.
#[derive(Clone, Copy)]
pub struct StateLayer {
    pub channels: usize,
    pub inputs: usize,
    pub heads: usize,
    pub rows: usize,
    pub columns: usize,
    /// Floats from a slot's start to the layer's.
    pub offset: usize,
}

impl StateLayer {
    fn decode(w: &mut Words, offset: usize) -> Result<Self> {
        let [channels, inputs, heads, rows, columns] = [w.size()?, w.size()?, w.size()?, w.size()?, w.size()?];
        for n in [channels, inputs, heads, rows, columns] {
            if n > MOST {
                bail!("sizes of a recurrent state must be at most {MOST} (got {n})");
            }
        }
        Ok(Self { channels, inputs, heads, rows, columns, offset })
    }

    /// Floats of the convolution's inputs.
    pub fn conv_floats(&self) -> usize {
        self.inputs * self.channels
    }

    pub fn matrix_floats(&self) -> usize {
        self.heads * self.rows * self.columns
    }

    fn floats(&self) -> usize {
        self.conv_floats() + self.matrix_floats()
    }
}

/// What sequences carry from token to token in layers without a KV cache: a slot for each sequence, and in it layer by
/// layer what each carries.
pub struct RecurrentShape {
    pub layers: Vec<StateLayer>,
    /// Floats of a slot.
    pub slot_floats: usize,
    pub slots: usize,
}

impl RecurrentShape {
    pub(super) fn decode(w: &mut Words) -> Result<Self> {
        let (count, slots) = (w.size()?, w.size()?);
        let (mut layers, mut slot_floats) = (Vec::new(), 0usize);
        for _ in 0..count {
            let layer = StateLayer::decode(w, slot_floats)?;
            layers.push(layer);
            slot_floats = match slot_floats.checked_add(layer.floats()) {
                Some(floats) => floats,
                None => bail!("A recurrent state of {count} layers is beyond all memory"),
            };
        }
        Ok(Self { layers, slot_floats, slots })
    }

    /// Bytes of all slots.
    pub(super) fn bytes(&self) -> Result<usize> {
        match self.slot_floats.checked_mul(4).and_then(|bytes| bytes.checked_mul(self.slots)) {
            Some(bytes) => Ok(bytes),
            None => bail!("{} recurrent states of {} floats are beyond all memory", self.slots, self.slot_floats),
        }
    }
}
