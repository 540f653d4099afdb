//! The shape of the KV cache, and of the attention heads that read it.
use super::MOST_HEADS;
use crate::bail;
use crate::error::Result;
use crate::kernels::kv::KvType;
use crate::words::Words;

/// The heads of an attention op.
#[derive(Clone, Copy)]
pub struct Heads {
    pub layer: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Whether a gate of the head's width follows each head in the query rows. The head's result is multiplied by it.
    pub gated: bool,
}

impl Heads {
    /// Returns the number of floats from one head in a query row to the next.
    pub fn query_stride(&self) -> usize {
        self.head_dim * if self.gated { 2 } else { 1 }
    }

    pub fn query_columns(&self) -> usize {
        self.heads * self.query_stride()
    }
}

/// A layer of the KV cache: its heads, and where their keys and values are in a block.
#[derive(Clone, Copy)]
pub struct KvLayer {
    pub heads: usize,
    pub head_dim: usize,
    /// Bytes of a head's keys and of its values in a block.
    pub head_bytes: [usize; 2],
    /// Index of the group of layers to which this layer belongs.
    pub group: usize,
    /// Offset in bytes of the layer's first head in a block of keys, and in a block of values.
    pub offset: [usize; 2],
}

/// The shape of the KV cache, [block][layer of a group][head]. A block holds KV_BLOCK tokens of all layers of one group
/// side by side, so a sequence uses few pages. Sequences have a block table for each group.
pub struct KvShape {
    pub kind: KvType,
    pub blocks: usize,
    /// For each group: the number of positions to which its rows attend, including their own. usize::MAX means all.
    pub windows: Vec<usize>,
    pub layers: Vec<KvLayer>,
    /// Bytes of a block's keys and of its values, over all layers of the largest group.
    pub block_bytes: [usize; 2],
    /// For each group: bytes of its keys and of its values in a block.
    pub group_bytes: Vec<[usize; 2]>,
}

impl KvShape {
    pub(super) fn decode(w: &mut Words) -> Result<Self> {
        let kind = match w.u32()? {
            0 => KvType::Int16,
            1 => KvType::Q8_0,
            2 => KvType::Q4_0,
            code => bail!("A KV cache of the unknown type {code}"),
        };
        let (blocks, groups, count) = (w.size()?, w.size()?, w.size()?);
        let mut kv = Self {
            kind,
            blocks,
            windows: Vec::new(),
            layers: Vec::new(),
            block_bytes: [0; 2],
            group_bytes: Vec::new(),
        };
        for _ in 0..groups {
            let window = w.size()?;
            kv.windows.push(if window == 0 { usize::MAX } else { window });
        }
        kv.group_bytes = vec![[0; 2]; kv.windows.len()];
        for _ in 0..count {
            let (heads, head_dim, group) = (w.size()?, w.size()?, w.size()?);
            if heads.max(head_dim) > MOST_HEADS {
                bail!("KV heads and their dimension must be at most {MOST_HEADS} (got {heads} of {head_dim})");
            }
            if heads == 0 || head_dim == 0 || !head_dim.is_multiple_of(16) {
                bail!("KV heads must be at least 1, their dimension a multiple of 16 (got {heads} of {head_dim})");
            }
            let Some(bytes) = kv.group_bytes.get_mut(group) else {
                bail!("The group of a layer's KV cache must be below {groups} (got {group})");
            };
            let (head_bytes, offset) = (kind.block_bytes(head_dim), *bytes);
            kv.layers.push(KvLayer { heads, head_dim, head_bytes, group, offset });
            for i in 0..2 {
                bytes[i] = match offset[i].checked_add(heads * head_bytes[i]) {
                    Some(bytes) => bytes,
                    None => bail!("A KV cache of {count} layers is too large for memory"),
                };
                kv.block_bytes[i] = kv.block_bytes[i].max(bytes[i]);
            }
        }
        Ok(kv)
    }

    /// Returns the number of positions to which the layer's rows attend; usize::MAX means all.
    pub fn window(&self, layer: usize) -> usize {
        self.windows[self.layers[layer].group]
    }

    /// Returns the bytes of all keys and of all values.
    pub(super) fn bytes(&self) -> Result<[usize; 2]> {
        let [keys, values] = self.block_bytes.map(|bytes| self.blocks.checked_mul(bytes));
        let (Some(keys), Some(values)) = (keys, values) else {
            let most = self.block_bytes[0].max(self.block_bytes[1]);
            bail!("A KV cache of {} blocks of {most} bytes is too large for memory", self.blocks);
        };
        Ok([keys, values])
    }
}
