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
    /// In the queries' rows each head is followed by a gate as wide, which its result is weighed with.
    pub gated: bool,
}

impl Heads {
    /// Floats from one head of a row of queries to the next.
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
    /// Bytes of a head's keys in a block; its values take as many.
    pub head_bytes: usize,
    /// Bytes from a block's start to the layer's first head.
    pub offset: usize,
}

/// The KV cache is [block][layer][head]: a block's layers lie together, so that what a sequence uses is made of few pages.
pub struct KvShape {
    pub kind: KvType,
    pub blocks: usize,
    pub layers: Vec<KvLayer>,
    /// Bytes of a block's keys, over all layers; its values take as many.
    pub block_bytes: usize,
}

impl KvShape {
    pub(super) fn decode(w: &mut Words) -> Result<Self> {
        let kind = match w.u32()? {
            0 => KvType::F16,
            1 => KvType::Q8_0,
            code => bail!("A KV cache of the unknown type {code}"),
        };
        let (blocks, count) = (w.size()?, w.size()?);
        let mut kv = Self { kind, blocks, layers: Vec::new(), block_bytes: 0 };
        for _ in 0..count {
            let (heads, head_dim) = (w.size()?, w.size()?);
            if heads.max(head_dim) > MOST_HEADS {
                bail!("KV heads and their dimension must be at most {MOST_HEADS} (got {heads} of {head_dim})");
            }
            if heads == 0 || head_dim == 0 || !head_dim.is_multiple_of(16) {
                bail!("KV heads must be at least 1, their dimension a multiple of 16 (got {heads} of {head_dim})");
            }
            let (head_bytes, offset) = (kind.block_bytes(head_dim), kv.block_bytes);
            kv.layers.push(KvLayer { heads, head_dim, head_bytes, offset });
            let Some(bytes) = offset.checked_add(heads * head_bytes) else {
                bail!("A KV cache of {count} layers is beyond all memory");
            };
            kv.block_bytes = bytes;
        }
        Ok(kv)
    }

    /// Bytes of all keys, which are those of all values.
    pub(super) fn bytes(&self) -> Result<usize> {
        match self.blocks.checked_mul(self.block_bytes) {
            Some(bytes) => Ok(bytes),
            None => bail!("A KV cache of {} blocks of {} bytes is beyond all memory", self.blocks, self.block_bytes),
        }
    }
}
