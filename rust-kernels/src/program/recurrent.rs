//! The shape of the recurrent state, which sequences keep between tokens in addition to the KV cache.
use crate::bail;
use crate::error::Result;
use crate::ops::delta_rule::MAX_DIM;
use crate::ops::mamba2::MAX_SIZE as MAX_MAMBA;
use crate::ops::short_conv::TAPS;
use crate::words::Words;

/// Maximum number of channels, heads, rows and columns. Their products stay below 2^64.
const MOST: usize = 1 << 20;

/// Heads of a delta rule layer. Value head v reads key head v % `key_heads`. With `in_groups`, consecutive value heads
/// share a key head.
#[derive(Clone, Copy)]
pub struct DeltaHeads {
    /// Index of the layer among the layers with a recurrent state.
    pub layer: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub head_dim: usize,
    pub in_groups: bool,
}

impl DeltaHeads {
    /// Returns the key head that a value head reads.
    pub fn key_head(&self, head: usize) -> usize {
        if self.in_groups { head / self.group() } else { head % self.key_heads }
    }

    /// Returns the columns of a value head's beta and alpha. With `in_groups` both are in the same row, in which a
    /// group's betas precede its alphas.
    pub fn beta_and_alpha(&self, head: usize) -> [usize; 2] {
        if !self.in_groups {
            return [head; 2];
        }
        let beta = head + self.key_head(head) * self.group();
        [beta, beta + self.group()]
    }

    /// Returns the number of columns in the rows with betas and alphas.
    pub fn beta_columns(&self) -> usize {
        if self.in_groups { 2 * self.value_heads } else { self.value_heads }
    }

    /// Returns the number of value heads per key head.
    fn group(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// Returns the number of columns in a row with queries, keys and values.
    pub fn channels(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * self.head_dim
    }

    /// Rejects heads that the kernels do not support or that do not fit the layer's state.
    pub(super) fn check(&self, state: &StateLayer) -> Result<()> {
        let Self { layer, key_heads, value_heads, head_dim, .. } = *self;
        let dim = head_dim.is_multiple_of(32) && (32..=MAX_DIM).contains(&head_dim);
        let grouped = key_heads > 0 && key_heads <= value_heads && value_heads.is_multiple_of(key_heads);
        if !dim || !grouped || value_heads > MOST {
            bail!("recurrent heads: {value_heads} over {key_heads} of {head_dim} are not supported");
        }
        let wanted = [self.channels(), TAPS - 1, value_heads, head_dim, head_dim];
        if state.sizes() != wanted {
            bail!("{value_heads} heads over {key_heads} of {head_dim} do not fit the state of layer {layer}");
        }
        Ok(())
    }
}

/// The channels of a short convolution, in heads. The first `key_heads` heads are queries, the next `key_heads` heads
/// are keys; both are normalized.
#[derive(Clone, Copy)]
pub struct ConvHeads {
    /// Index of the layer among the layers with a recurrent state.
    pub layer: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub key_heads: usize,
}

impl ConvHeads {
    pub fn channels(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Rejects channels that the kernels do not support or that do not fit the layer's state.
    pub(super) fn check(&self, state: &StateLayer) -> Result<()> {
        let Self { layer, heads, head_dim, key_heads } = *self;
        let dim = head_dim.is_multiple_of(16) && (16..=MAX_DIM).contains(&head_dim);
        if !dim || heads == 0 || heads > MOST || key_heads > heads / 2 {
            bail!("a convolution of {heads} heads of {head_dim}, {key_heads} of them keys, is not supported");
        }
        if [state.channels, state.inputs] != [self.channels(), TAPS - 1] {
            bail!("a convolution of {} channels does not fit the state of layer {layer}", self.channels());
        }
        Ok(())
    }
}

/// Heads of a Mamba2 layer. Head h uses the vectors of group h / (heads / groups).
#[derive(Clone, Copy)]
pub struct MambaHeads {
    /// Index of the layer among the layers with a recurrent state.
    pub layer: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub groups: usize,
    /// Number of state values per channel of a head.
    pub state_size: usize,
}

impl MambaHeads {
    /// Returns the number of channels in all heads.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the number of values in all groups' input vectors (B). The output vectors (C) have the same number.
    pub fn vectors(&self) -> usize {
        self.groups * self.state_size
    }

    /// Returns the number of columns in a row: gates, channels, both kinds of vectors, and one step size per head.
    pub fn columns(&self) -> usize {
        2 * self.inner() + 2 * self.vectors() + self.heads
    }

    /// Rejects heads that the kernels do not support or that do not fit the layer's state.
    pub(super) fn check(&self, state: &StateLayer) -> Result<()> {
        let Self { layer, heads, head_dim, groups, state_size } = *self;
        let whole = [head_dim, state_size].iter().all(|n| n.is_multiple_of(16) && (16..=MAX_MAMBA).contains(n));
        let grouped = groups > 0 && groups <= heads && heads.is_multiple_of(groups);
        if !whole || !grouped || heads > MOST {
            bail!("Mamba2 of {heads} heads of {head_dim} in {groups} groups over {state_size} is not supported");
        }
        let wanted = [self.inner() + 2 * self.vectors(), TAPS - 1, heads, head_dim, state_size + 1];
        if state.sizes() != wanted {
            bail!("Mamba2 of {heads} heads of {head_dim} over {state_size} does not fit the state of layer {layer}");
        }
        Ok(())
    }
}

/// The state of a layer: the last inputs of a convolution, then a matrix [rows][columns] per head. A layer may lack
/// either.
#[derive(Clone, Copy)]
pub struct StateLayer {
    pub channels: usize,
    pub inputs: usize,
    pub heads: usize,
    pub rows: usize,
    pub columns: usize,
    /// Offset in floats from a slot's start to the layer's state.
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

    fn sizes(&self) -> [usize; 5] {
        [self.channels, self.inputs, self.heads, self.rows, self.columns]
    }

    /// Returns the number of floats that the convolution's last inputs take.
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

/// The recurrent state of layers without a KV cache. Each sequence has a slot, which holds the state of each layer.
pub struct RecurrentShape {
    pub layers: Vec<StateLayer>,
    /// Number of floats in a slot.
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
                None => bail!("A recurrent state of {count} layers is too large for memory"),
            };
        }
        Ok(Self { layers, slot_floats, slots })
    }

    /// Returns the size of all slots in bytes.
    pub(super) fn bytes(&self) -> Result<usize> {
        match self.slot_floats.checked_mul(4).and_then(|bytes| bytes.checked_mul(self.slots)) {
            Some(bytes) => Ok(bytes),
            None => bail!("{} recurrent states of {} floats are too large for memory", self.slots, self.slot_floats),
        }
    }
}
