//! The shape of the KV cache, and of the heads that read it.
use crate::kernels::kv::KvType;

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

/// Shapes of the KV cache; the same in every layer that has one.
#[derive(Clone, Copy)]
pub struct KvShape {
    pub kind: KvType,
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub blocks: usize,
}

impl KvShape {
    /// Bytes of a head's keys in a block.
    pub fn block_bytes(&self) -> usize {
        self.kind.block_bytes(self.head_dim)
    }

    /// Bytes of all keys, which are those of all values; None where they are beyond all memory.
    pub(super) fn bytes(&self) -> Option<usize> {
        [self.blocks, self.heads, self.layers].iter().try_fold(self.block_bytes(), |n, m| n.checked_mul(*m))
    }
}

impl KvShape {
    /// Bytes from a layer's start to a block's and head's keys (or values). The cache is [block][layer][head]: a
    /// block's layers lie together, so that what a sequence uses is made of few pages.
    pub fn offset(&self, block: usize, head: usize) -> usize {
        (block * self.layers * self.heads + head) * self.block_bytes()
    }
}
