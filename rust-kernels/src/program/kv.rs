//! The shape of the KV cache, and of the heads that read it.
use super::MOST_HEADS;
use crate::bail;
use crate::error::Result;
use crate::kernels::kv::KvType;
use crate::words::Words;

/// Heads of the attention ops.
#[derive(Clone, Copy)]
pub struct Heads {
    pub layer: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Whether a gate of the same width follows each head in the query rows. It weights the head's result.
    pub gated: bool,
}

impl Heads {
    /// Floats from one head in a query row to the next.
    pub fn query_stride(&self) -> usize {
        self.head_dim * if self.gated { 2 } else { 1 }
    }

    pub fn query_columns(&self) -> usize {
        self.heads * self.query_stride()
    }
}

/// A layer of the KV cache.
#[derive(Clone, Copy)]
pub struct KvLayer {
    pub heads: usize,
    pub head_dim: usize,
    /// Bytes of a head's keys in a block. Values take as many.
    pub head_bytes: usize,
    /// The group that the layer belongs to.
    pub group: usize,
    /// Bytes from a block's start to the layer's first head.
    pub offset: usize,
}

/// The KV cache is [block][layer of a group][head]. A block holds KV_BLOCK tokens of the layers of any one group,
/// which lie together, so a sequence uses few pages. Sequences have a block table for each group.
pub struct KvShape {
    pub kind: KvType,
    pub blocks: usize,
    /// For each group: the number of positions that its rows see, their own included. usize::MAX means all.
    pub windows: Vec<usize>,
    pub layers: Vec<KvLayer>,
    /// Bytes of a block's keys, over all layers of the largest group. Values take as many.
    pub block_bytes: usize,
    /// For each group: bytes of its keys in a block. Values take as many.
    pub group_bytes: Vec<usize>,
}

impl KvShape {
    pub(super) fn decode(w: &mut Words) -> Result<Self> {
        let kind = match w.u32()? {
            0 => KvType::Int16,
            1 => KvType::Q8_0,
            code => bail!("A KV cache of the unknown type {code}"),
        };
        let (blocks, groups, count) = (w.size()?, w.size()?, w.size()?);
        let mut kv =
            Self { kind, blocks, windows: Vec::new(), layers: Vec::new(), block_bytes: 0, group_bytes: Vec::new() };
        for _ in 0..groups {
            let window = w.size()?;
            kv.windows.push(if window == 0 { usize::MAX } else { window });
        }
        kv.group_bytes = vec![0; kv.windows.len()];
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
            *bytes = match offset.checked_add(heads * head_bytes) {
                Some(bytes) => bytes,
                None => bail!("A KV cache of {count} layers is too large for memory"),
            };
            kv.block_bytes = kv.block_bytes.max(*bytes);
        }
        Ok(kv)
    }

    /// Number of positions that rows of the layer see; usize::MAX means all.
    pub fn window(&self, layer: usize) -> usize {
        self.windows[self.layers[layer].group]
    }

    /// Bytes of all keys. Values take as many.
    pub(super) fn bytes(&self) -> Result<usize> {
        match self.blocks.checked_mul(self.block_bytes) {
            Some(bytes) => Ok(bytes),
            None => bail!("A KV cache of {} blocks of {} bytes is too large for memory", self.blocks, self.block_bytes),
        }
    }
}
