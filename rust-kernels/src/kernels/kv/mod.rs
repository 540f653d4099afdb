//! The blocks of the KV cache. A block holds the keys or the values of KV_BLOCK tokens of one head in one layer. The
//! cache's type defines its bytes and how attention reads them.
pub mod int16;
pub mod q4_0;
pub mod q8_0;
mod weights;

use self::int16::Int16;
use self::q4_0::Q4_0;
use self::q8_0::Q8_0;
use crate::simd::{Isa, Kernel, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Number of tokens in a KV block. engine/backend/backend.ts has the same number.
pub const KV_BLOCK: usize = 32;
/// Maximum number of blocks whose values one call of `KvFormat::mix` adds.
pub const MAX_BLOCKS: usize = 4;
/// Maximum number of query rows that attend together.
pub const MAX_ROWS: usize = 64;
/// Rows of sums that `mix` adds to hold a multiple of this number of floats.
pub const PADDED: usize = 32;
/// The largest finite half float. Keys and values are clamped to it, so that a masked position never multiplies 0 by
/// infinity.
const HALF_MAX: f32 = 65504.0;

/// The type of cached keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvType {
    Int16,
    Q8_0,
    Q4_0,
}

impl KvType {
    pub const ALL: [Self; 3] = [Self::Int16, Self::Q8_0, Self::Q4_0];

    /// Returns the bytes of a block of keys and of a block of values. They are multiples of 64 if `head_dim` is a
    /// multiple of 16. `head_dim` is below 2^32, so the product does not overflow.
    pub const fn block_bytes(self, head_dim: usize) -> [usize; 2] {
        match self {
            Self::Int16 => [2 * (head_dim + 1) * KV_BLOCK; 2],
            Self::Q8_0 => [(head_dim + 2 * head_dim.div_ceil(q8_0::SCALED)) * KV_BLOCK; 2],
            Self::Q4_0 => [
                q4_0::scale_index(q4_0::keys::KEY_BITS, head_dim, q4_0::padded(head_dim), 0),
                q4_0::scale_index(q4_0::VALUE_BITS, head_dim, q4_0::padded(head_dim), 0),
            ],
        }
    }

    pub fn appenders(self) -> Appenders {
        match self {
            Self::Int16 => Appenders::of::<Int16>(),
            Self::Q8_0 => Appenders::of::<Q8_0>(),
            Self::Q4_0 => Appenders::of::<Q4_0>(),
        }
    }

    /// Returns the number of scratch floats for `Queries`.
    pub fn scratch_len(self, head_dim: usize) -> usize {
        match self {
            Self::Int16 => Int16::scratch_len(head_dim),
            Self::Q8_0 => Q8_0::scratch_len(head_dim),
            Self::Q4_0 => Q4_0::scratch_len(head_dim),
        }
    }
}

/// Kernel that writes the head_dim floats at `x` as a key to its slot of a block.
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

/// Kernel that writes the head_dim floats at `x` as a value to its slot of a block.
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

/// The functions that append keys and values to a type of cache. Arguments: instruction set, floats, head dimension,
/// block, slot. Safety: as `KvFormat`.
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

/// The query rows that attend together, and their scratch memory.
pub struct Queries<'a> {
    /// Addresses of the query rows; each has head_dim floats.
    pub q: &'a [*const f32],
    pub head_dim: usize,
    /// Scratch memory of `KvFormat::scratch_len` floats. The output of `prepare` stays there until the last row is
    /// done.
    pub scratch: *mut f32,
}

/// The address of a block, and of the block that is read after it.
#[derive(Clone, Copy)]
pub struct Block {
    pub at: *const u8,
    pub next: *const u8,
}

impl Block {
    /// Returns the bytes from the current block to the next, for prefetching. Hardware prefetchers stop at each page,
    /// and blocks are one or two pages long. The next block goes to the second-level cache, because the first level has
    /// too few miss buffers for it.
    pub fn ahead(&self) -> isize {
        (self.next as isize).wrapping_sub(self.at as isize)
    }
}

/// Rows of floats that are `stride` floats apart.
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

/// Writes and reads the blocks of one type of cache. A row's result depends only on the row and the block.
///
/// # Safety
/// For all functions: pointers hold what the comments say. `head_dim` is a multiple of 16 and the same everywhere.
/// Blocks have `KvType::block_bytes` bytes; slots are below KV_BLOCK.
#[allow(clippy::missing_safety_doc)]
pub trait KvFormat {
    /// Returns the number of scratch floats for heads of `head_dim`.
    fn scratch_len(head_dim: usize) -> usize;
    /// Writes the key at `x`, head_dim floats, to its slot of the block.
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize);
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize);
    /// Converts the queries to the form that `scores` reads.
    unsafe fn prepare<S: Simd>(s: S, queries: &Queries);
    /// For some rows r: sets out[r] to the products of query r with each of the block's keys.
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix);
    /// Prefetches the data of the blocks that `mix` reads first.
    #[inline(always)]
    unsafe fn before_mix<S: Simd>(_s: S, _head_dim: usize, _values: &[Block]) {}
    /// For some rows r: adds the blocks' first `depth` values, weighted with `weights[r]`, to out[r]. `values` has
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
    /// Converts a row of sums to the dimensions of the head, in place. Rows hold a multiple of PADDED floats.
    #[inline(always)]
    unsafe fn finish<S: Simd>(_s: S, _row: *mut f32, _head_dim: usize) {}
}
