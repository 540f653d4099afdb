//! The KV cache's blocks. A block holds the keys, or the values, of KV_BLOCK tokens of one head in one layer; what its
//! bytes are, and how attention reads them, is its type's own affair.
pub mod int16;
pub mod q8_0;

use self::int16::Int16;
use self::q8_0::Q8_0;
use crate::simd::{Isa, Kernel, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Tokens of a KV block; engine/backend/backend.ts has the same number.
pub const KV_BLOCK: usize = 32;
/// Most blocks whose values are mixed at once.
pub const MAX_BLOCKS: usize = 4;
/// Most query rows that attend together.
pub const MAX_ROWS: usize = 64;
/// The largest finite half: keys and values beyond are clamped, so that a masked position never multiplies 0 by infinity.
const HALF_MAX: f32 = 65504.0;

/// What keys and values are kept as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvType {
    Int16,
    Q8_0,
}

impl KvType {
    pub const ALL: [Self; 2] = [Self::Int16, Self::Q8_0];

    /// Bytes of a block: a multiple of 64 for every `head_dim` that is one of 16. It is below 2^32, so they do not overflow.
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

    /// Floats of working memory that `Queries` wants.
    pub fn scratch_len(self, head_dim: usize) -> usize {
        match self {
            Self::Int16 => Int16::scratch_len(head_dim),
            Self::Q8_0 => Q8_0::scratch_len(head_dim),
        }
    }
}

/// Writes head_dim floats at `x` as a key to its slot of a block.
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

/// The same of a value.
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

/// How a type of cache takes keys and values: floats, head dimension, block, slot. Safety: as `KvFormat`.
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

/// The rows of queries that attend together.
pub struct Queries<'a> {
    /// Row r, head_dim floats, at `q[r]`.
    pub q: &'a [*const f32],
    pub head_dim: usize,
    /// `KvFormat::scratch_len` floats; what `prepare` leaves there stays until the last row is done.
    pub scratch: *mut f32,
}

/// A block, and the one that will be read after it.
#[derive(Clone, Copy)]
pub struct Block {
    pub at: *const u8,
    pub next: *const u8,
}

impl Block {
    /// Bytes from what is read to what will be read after it: hardware prefetch stops at each page, and blocks are a page
    /// or two long. It is asked for into the second-level cache: the first level has too few buffers of misses to hold what
    /// is wanted later beside what is wanted now.
    pub fn ahead(&self) -> isize {
        (self.next as isize).wrapping_sub(self.at as isize)
    }
}

/// Rows of floats, `stride` apart.
#[derive(Clone, Copy)]
pub struct FloatMatrix {
    pub at: *mut f32,
    pub stride: usize,
}

impl FloatMatrix {
    /// # Safety
    /// The row lies in the matrix.
    #[inline(always)]
    pub unsafe fn row(&self, r: usize) -> *mut f32 {
        unsafe { self.at.add(r * self.stride) }
    }
}

/// How a type of cache is written and read. What is computed for a row depends on nothing but the row and the block.
///
/// # Safety
/// Of all functions: pointers hold what is said, `head_dim` is a multiple of 16 and the same everywhere, blocks have
/// `KvType::block_bytes`, slots are below KV_BLOCK.
#[allow(clippy::missing_safety_doc)]
pub trait KvFormat {
    /// Floats of working memory.
    fn scratch_len(head_dim: usize) -> usize;
    /// Writes the key at `x`, head_dim floats, to its slot of the block.
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize);
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize);
    /// Makes of the queries what `scores` reads.
    unsafe fn prepare<S: Simd>(s: S, queries: &Queries);
    /// out[r] = products of query r with each of the block's keys, for some of the rows.
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix);
    /// Asks for what `mix` will read first of the blocks.
    #[inline(always)]
    unsafe fn before_mix<S: Simd>(_s: S, _head_dim: usize, _values: &[Block]) {}
    /// out[r] += the blocks' first `depth` values, weighed with `weights[r]`, for some of the rows. There are just as many
    /// blocks as that takes, MAX_BLOCKS at most. The weights of further positions may be overwritten.
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
