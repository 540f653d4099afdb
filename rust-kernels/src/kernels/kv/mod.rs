//! The blocks of the KV cache. A block holds the keys or the values of KV_BLOCK tokens of one head in one layer. The
//! cache's type defines its bytes and how attention reads them.
pub mod int16;
pub mod q8_0;

use self::int16::Int16;
use self::q8_0::Q8_0;
use crate::simd::{Isa, Kernel, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Tokens of a KV block. engine/backend/backend.ts has the same number.
pub const KV_BLOCK: usize = 32;
/// Maximum blocks whose values are mixed at once.
pub const MAX_BLOCKS: usize = 4;
/// Maximum query rows that attend together.
pub const MAX_ROWS: usize = 64;
/// The largest finite half float. Keys and values are clamped to it, so that a masked position never multiplies 0 by
/// infinity.
const HALF_MAX: f32 = 65504.0;

/// The type of cached keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvType {
    Int16,
    Q8_0,
}

impl KvType {
    pub const ALL: [Self; 2] = [Self::Int16, Self::Q8_0];

    /// Bytes of a block: a multiple of 64 if `head_dim` is a multiple of 16. `head_dim` is below 2^32, so this does
    /// not overflow.
    pub const fn block_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::Int16 => 2 * (head_dim + 1) * KV_BLOCK,
            Self::Q8_0 => (head_dim + 2 * head_dim.div_ceil(q8_0::SCALED)) * KV_BLOCK,
        }
    }

    pub fn appenders(self) -> Appenders {
        match self {
            Self::Int16 => Appenders::of::<Int16>(),
            Self::Q8_0 => Appenders::of::<Q8_0>(),
        }
    }

    /// Floats of scratch memory for `Queries`.
    pub fn scratch_len(self, head_dim: usize) -> usize {
        match self {
            Self::Int16 => Int16::scratch_len(head_dim),
            Self::Q8_0 => Q8_0::scratch_len(head_dim),
        }
    }
}

/// Writes the head_dim floats at `x` as a key to its slot of a block.
struct AppendKey<K> {
    x: *const f32,
    head_dim: usize,
    block: *mut u8,
    slot: usize,
    kind: PhantomData<K>,
}

impl<K: KvFormat> Kernel for AppendKey<K> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe { K::append_key(s, self.x, self.head_dim, self.block, self.slot) }
    }
}

/// The same for a value.
struct AppendValue<K> {
    x: *const f32,
    head_dim: usize,
    block: *mut u8,
    slot: usize,
    kind: PhantomData<K>,
}

impl<K: KvFormat> Kernel for AppendValue<K> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe { K::append_value(s, self.x, self.head_dim, self.block, self.slot) }
    }
}

/// Functions that append keys and values. Arguments: instruction set, floats, head dimension, block, slot. Safety: as
/// `KvFormat`.
pub struct Appenders {
    pub key: unsafe fn(Isa, *const f32, usize, *mut u8, usize),
    pub value: unsafe fn(Isa, *const f32, usize, *mut u8, usize),
}

impl Appenders {
    const fn of<K: KvFormat>() -> Self {
        Self {
            key: |isa, x, head_dim, block, slot| unsafe {
                isa.run(AppendKey { x, head_dim, block, slot, kind: PhantomData::<K> })
            },
            value: |isa, x, head_dim, block, slot| unsafe {
                isa.run(AppendValue { x, head_dim, block, slot, kind: PhantomData::<K> })
            },
        }
    }
}

/// The query rows that attend together.
pub struct Queries<'a> {
    /// Row r has head_dim floats at `q[r]`.
    pub q: &'a [*const f32],
    pub head_dim: usize,
    /// `KvFormat::scratch_len` floats. The output of `prepare` stays there until the last row is done.
    pub scratch: *mut f32,
}

/// A block, and the block that is read after it.
#[derive(Clone, Copy)]
pub struct Block {
    pub at: *const u8,
    pub next: *const u8,
}

impl Block {
    /// Bytes from the current block to the next, for prefetching. Hardware prefetchers stop at each page, and blocks
    /// are one or two pages long. The target is the second-level cache, because the first level has too few miss
    /// buffers for later data.
    pub fn ahead(&self) -> isize {
        (self.next as isize).wrapping_sub(self.at as isize)
    }
}

/// Rows of floats, `stride` floats apart.
#[derive(Clone, Copy)]
pub struct FloatMatrix {
    pub at: *mut f32,
    pub stride: usize,
}

impl FloatMatrix {
    /// # Safety
    /// The row is within the matrix.
    #[inline(always)]
    pub unsafe fn row(&self, r: usize) -> *mut f32 {
        unsafe { self.at.add(r * self.stride) }
    }
}

/// Writes and reads one type of cache. A row's result depends only on the row and the block.
///
/// # Safety
/// For all functions: pointers hold what the comments say. `head_dim` is a multiple of 16 and the same everywhere.
/// Blocks have `KvType::block_bytes` bytes; slots are below KV_BLOCK.
#[allow(clippy::missing_safety_doc)]
pub trait KvFormat {
    /// Floats of scratch memory.
    fn scratch_len(head_dim: usize) -> usize;
    /// Writes the key at `x`, head_dim floats, to its slot of the block.
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize);
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize);
    /// Converts the queries for `scores`.
    unsafe fn prepare<S: Simd>(s: S, queries: &Queries);
    /// out[r] = products of query r with each of the block's keys, for some of the rows.
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix);
    /// Prefetches the data of the blocks that `mix` reads first.
    #[inline(always)]
    unsafe fn before_mix<S: Simd>(_s: S, _head_dim: usize, _values: &[Block]) {}
    /// out[r] += the blocks' first `depth` values, weighted with `weights[r]`, for some of the rows. `values` has
    /// exactly the blocks of these values, at most MAX_BLOCKS. May overwrite the weights of further positions.
    unsafe fn mix<S: Simd>(
        s: S,
        queries: &Queries,
        rows: Range<usize>,
        weights: FloatMatrix,
        depth: usize,
        values: &[Block],
        out: FloatMatrix,
    );
}
