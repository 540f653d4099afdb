//! Weights in memory. Tensor by tensor, a matrix is read from the file and packed into panels, so its weights are
//! stored only once.
//!
//! The file is read at offsets instead of being mapped, for three reasons. Everything is packed anyway. A file that
//! shrinks causes an error instead of a SIGBUS. No page of the file counts as resident memory.
mod bytes;

pub use self::bytes::{Bytes, Piece};

use crate::bail;
use crate::error::{Error, Result};
use crate::formats::{Format, format};
use crate::memory::{Pages, Region};
use crate::pool::{Items, Pool};
use crate::simd::Isa;
use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// Number of bytes that a thread reads at once.
const READ: usize = 1 << 20;
/// Maximum number of tensors: far more than any model has.
const MOST_TENSORS: usize = 1 << 20;

/// The type and shape of a tensor, and its offset in the file.
pub struct Source {
    pub format: u32,
    pub columns: usize,
    pub rows: usize,
    pub offset: u64,
}

/// A matrix that is packed into panels.
pub struct Matrix {
    pub format: &'static Format,
    pub columns: usize,
    pub rows: usize,
    pub panel_bytes: usize,
    pub panels: *const u8,
}

// SAFETY: the panels are written before the matrix exists and never afterwards; the arena outlives it.
unsafe impl Send for Matrix {}
unsafe impl Sync for Matrix {}

pub enum Tensor {
    Matrix(Matrix),
    Vector(Vec<f32>),
}

/// All tensors of a model by index, and the memory for the panels of matrices.
pub struct Weights {
    tensors: Vec<Option<Tensor>>,
    arena: Region,
    used: usize,
    /// A partly loaded matrix: its index, and the number of rows that are loaded.
    partial: Option<(usize, usize)>,
    /// Factors for a matrix that is not loaded yet: its index, and one factor for each of equal parts of its rows.
    factors: Option<(usize, Vec<f32>)>,
}

impl Weights {
    /// # Errors
    /// There are too many tensors, or the memory cannot be reserved.
    pub fn new(tensors: usize, bytes: u64) -> Result<Self> {
        if tensors > MOST_TENSORS {
            bail!("A model may have at most {MOST_TENSORS} tensors (got {tensors})");
        }
        let Ok(bytes) = usize::try_from(bytes) else { bail!("Cannot reserve {bytes} bytes for the model's weights") };
        let arena = Region::new(bytes, Pages::Huge, "the model's weights")?;
        Ok(Self { tensors: (0..tensors).map(|_| None).collect(), arena, used: 0, partial: None, factors: None })
    }

    /// Sets factors for the rows of a matrix that is not loaded yet. The rows are split into equal parts, one per
    /// factor, and each factor multiplies its part.
    ///
    /// # Errors
    /// The tensor does not exist, there are no factors, or a factor is not finite.
    pub fn set_factors(&mut self, index: usize, factors: Vec<f32>) -> Result<()> {
        if index >= self.tensors.len() {
            bail!("Tensor {index} is out of range 0..{}", self.tensors.len());
        }
        if factors.is_empty() || factors.iter().any(|factor| !factor.is_finite()) {
            bail!("A tensor's factors must be finite numbers, and at least one");
        }
        self.factors = Some((index, factors));
        Ok(())
    }

    /// # Errors
    /// The tensor is not loaded, or is a vector.
    pub fn matrix(&self, index: usize) -> Result<&Matrix> {
        match self.tensors.get(index) {
            Some(Some(Tensor::Matrix(m))) => Ok(m),
            _ => Err(Error::new(format!("Tensor {index} is not a loaded matrix"))),
        }
    }

    /// # Errors
    /// The tensor is not loaded, or is not a vector of `len` floats.
    pub fn vector(&self, index: usize, len: usize) -> Result<&[f32]> {
        match self.tensors.get(index) {
            Some(Some(Tensor::Vector(v))) if v.len() == len => Ok(v),
            _ => Err(Error::new(format!("Tensor {index} is not a loaded vector of {len} floats"))),
        }
    }

    /// Reads and packs a matrix.
    ///
    /// # Errors
    /// The format is unknown, the shape is not supported, too little memory is reserved, the file cannot be read, or a
    /// scale is NaN.
    pub fn load_matrix(&mut self, index: usize, file: &File, s: &Source, isa: Isa, pool: &mut Pool) -> Result<()> {
        let layout = known(s.format)?;
        let shape = Shape::new(s, layout, isa.lanes())?;
        check_extent(file, s, shape.file_bytes)?;
        self.pack(index, file, s, (layout, &shape), 0..s.rows, isa, pool)
    }

    /// Packs a matrix whose rows arrive in pieces, in order. Each piece has whole panels, except the last. Ignores
    /// `s.offset`.
    ///
    /// # Errors
    /// As `load_matrix`; or the rows are not the next ones.
    pub fn load_rows(
        &mut self,
        index: usize,
        first: usize,
        piece: &Piece,
        s: &Source,
        isa: Isa,
        pool: &mut Pool,
    ) -> Result<()> {
        let layout = known(s.format)?;
        let shape = Shape::new(s, layout, isa.lanes())?;
        let next = self.partial.map_or(0, |(of, rows)| if of == index { rows } else { 0 });
        let rows = piece.0.len() / shape.row_source;
        let whole = rows * shape.row_source == piece.0.len();
        if first != next || rows == 0 || !whole || rows > s.rows - first {
            bail!(
                "{} bytes are not some of the rows from {next} to {}, of {} bytes each",
                piece.0.len(),
                s.rows,
                shape.row_source
            );
        }
        if first + rows < s.rows && !rows.is_multiple_of(isa.lanes()) {
            bail!("{rows} rows are not a multiple of {}", isa.lanes());
        }
        self.pack(index, piece, s, (layout, &shape), first..first + rows, isa, pool)
    }

    /// Packs some rows of a matrix. The matrix exists as soon as its last rows are packed. The first of these rows is
    /// in `bytes` at `s.offset`.
    #[expect(clippy::too_many_arguments)]
    fn pack(
        &mut self,
        index: usize,
        bytes: &dyn Bytes,
        s: &Source,
        (layout, shape): (&'static Format, &Shape),
        rows: Range<usize>,
        isa: Isa,
        pool: &mut Pool,
    ) -> Result<()> {
        if index >= self.tensors.len() || self.arena.len() - self.used < shape.bytes {
            bail!("Tensor {index} of {} bytes does not fit into the reserved memory", shape.bytes);
        }
        let factors = self.factors.take_if(|(of, _)| *of == index).map(|(_, factors)| factors);
        if let Some(factors) = &factors
            && (layout.put_factors.is_none() || !s.rows.is_multiple_of(factors.len()))
        {
            bail!("{} rows of {} cannot be multiplied by {} factors", s.rows, layout.name, factors.len());
        }
        let lanes = isa.lanes();
        let before = rows.start / lanes;
        let panels = rows.end.div_ceil(lanes) - before;
        let base = SendPtr(self.arena.at(self.used + before * shape.panel_bytes));
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let grain = (READ / shape.panel_source).max(1);
        let done = pool.run(&|_| {
            let factors = factors.as_deref();
            let reader = Reader { bytes, s, layout, shape, lanes, rows: rows.clone(), factors };
            if let Err(e) = reader.pack(Items::new(&next, panels, grain), grain, base) {
                *failure.lock().unwrap_or_else(|e| e.into_inner()) = Some(e);
            }
        });
        if let Err(panic) = done {
            bail!("Packing the tensor panicked: {panic}");
        }
        if let Some(e) = failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(e);
        }
        if rows.end < s.rows {
            self.partial = Some((index, rows.end));
            self.factors = factors.map(|factors| (index, factors));
            return Ok(());
        }
        let (columns, rows, panel_bytes) = (s.columns, s.rows, shape.panel_bytes);
        let matrix = Matrix { format: layout, columns, rows, panel_bytes, panels: self.arena.at(self.used) };
        (self.used, self.partial) = (self.used + shape.bytes, None);
        self.tensors[index] = Some(Tensor::Matrix(matrix));
        Ok(())
    }

    /// Reads a vector, such as a norm's weight or a bias, as floats.
    ///
    /// # Errors
    /// As `load_matrix`.
    pub fn load_vector(&mut self, index: usize, bytes: &dyn Bytes, s: &Source) -> Result<()> {
        let layout = known(s.format)?;
        if s.rows != 1 {
            bail!("A vector must have one row (got {})", s.rows);
        }
        let shape = Shape::new(s, layout, 1)?;
        if index >= self.tensors.len() {
            bail!("Tensor {index} is out of range 0..{}", self.tensors.len());
        }
        check_extent(bytes, s, shape.file_bytes)?;
        let mut raw = zeroes(shape.row_source)?;
        bytes.read(&mut raw, s.offset)?;
        self.tensors[index] = Some(Tensor::Vector(dequantize(s.format, &raw)?));
        Ok(())
    }
}

/// Reads rows of a matrix and packs them into panels.
struct Reader<'a> {
    bytes: &'a dyn Bytes,
    s: &'a Source,
    layout: &'a Format,
    shape: &'a Shape,
    lanes: usize,
    /// The rows that `bytes` has, from `s.offset` on, as row numbers of the matrix.
    rows: Range<usize>,
    /// Factors of the matrix's rows, one for each of equal parts.
    factors: Option<&'a [f32]>,
}

impl Reader<'_> {
    /// Reads and packs the panels that `items` hands out, at most `grain` at a time.
    fn pack(&self, items: Items, grain: usize, base: SendPtr) -> Result<()> {
        let Shape { row_source, panel_source, panel_bytes, .. } = *self.shape;
        let mut raw = zeroes(grain * panel_source)?;
        for range in items {
            let first = range.start * self.lanes;
            let bytes = (range.len() * self.lanes).min(self.rows.len() - first) * row_source;
            raw[bytes..].fill(0);
            self.bytes.read(&mut raw[..bytes], self.s.offset + (first * row_source) as u64)?;
            check_scales(self.layout, &raw[..bytes], self.rows.start + first, row_source)?;
            for (i, p) in range.enumerate() {
                // SAFETY: panel p is within the memory at `base`, and only this thread writes it.
                let panel = unsafe { std::slice::from_raw_parts_mut(base.get().add(p * panel_bytes), panel_bytes) };
                (self.layout.pack_panel)(&raw[i * panel_source..], row_source, self.s.columns, self.lanes, panel);
                self.multiply(panel, self.rows.start + p * self.lanes);
            }
        }
        Ok(())
    }

    /// Multiplies a packed panel, whose first row is row `first` of the matrix, by its rows' factors.
    fn multiply(&self, panel: &mut [u8], first: usize) {
        let (Some(factors), Some(put_factors)) = (self.factors, self.layout.put_factors) else { return };
        let part = self.s.rows / factors.len();
        // The last panel may have more lanes than the matrix has rows. They get the last factor.
        let of_lane = |lane: usize| factors[((first + lane) / part).min(factors.len() - 1)];
        put_factors(panel, self.s.columns, &(0..self.lanes).map(of_lane).collect::<Vec<f32>>());
    }
}

/// Returns the values of blocks in a file's format.
///
/// # Errors
/// The format is unknown, the last block is incomplete, or a scale is NaN.
pub fn dequantize(format: u32, blocks: &[u8]) -> Result<Vec<f32>> {
    let layout = known(format)?;
    let Format { name, block_bytes, block_columns, dequantize, .. } = *layout;
    if !blocks.len().is_multiple_of(block_bytes) {
        bail!("{} bytes are not whole blocks of {name}, which have {block_bytes} bytes", blocks.len());
    }
    check_scales(layout, blocks, 0, blocks.len())?;
    let mut out = vec![0.0; blocks.len() / block_bytes * block_columns];
    for (block, y) in blocks.chunks_exact(block_bytes).zip(out.chunks_exact_mut(block_columns)) {
        dequantize(block, y);
    }
    Ok(out)
}

/// Returns the number of bytes that a matrix takes when packed.
///
/// # Errors
/// The format is unknown or does not support the shape.
pub fn packed_bytes(s: &Source, isa: Isa) -> Result<usize> {
    let layout = known(s.format)?;
    Ok(Shape::new(s, layout, isa.lanes())?.bytes)
}

/// Sizes of a tensor, all in bytes.
struct Shape {
    /// Sizes in the file: of a row, of a panel's rows, and of the tensor.
    row_source: usize,
    panel_source: usize,
    file_bytes: usize,
    panel_bytes: usize,
    /// Size of all packed panels.
    bytes: usize,
}

impl Shape {
    /// # Errors
    /// The format does not support the shape, or the tensor exceeds all memory.
    fn new(s: &Source, layout: &Format, lanes: usize) -> Result<Self> {
        let limit = 1 << 31;
        if s.columns == 0 || s.rows == 0 || s.columns >= limit || s.rows >= limit {
            bail!(
                "A tensor of {} x {} is not supported: rows and columns must be 1 to {}",
                s.rows,
                s.columns,
                limit - 1
            );
        }
        if !s.columns.is_multiple_of(layout.block_columns) {
            bail!("{} columns are not a multiple of {}'s block of {}", s.columns, layout.name, layout.block_columns);
        }
        // Columns are below 2^31, and block sizes and lanes are small. So the sizes of a row and of a panel cannot
        // overflow. Products with the number of rows can.
        let row_source = s.columns / layout.block_columns * layout.block_bytes;
        let (panels, panel_bytes) = (s.rows.div_ceil(lanes), (layout.panel_bytes)(s.columns, lanes));
        let product = |a: usize, b: usize| a.checked_mul(b).filter(|bytes| *bytes <= isize::MAX as usize);
        let (Some(file_bytes), Some(bytes)) = (product(row_source, s.rows), product(panels, panel_bytes)) else {
            bail!("A tensor of {} x {} is too large for memory", s.rows, s.columns);
        };
        Ok(Self { row_source, panel_source: row_source * lanes, file_bytes, panel_bytes, bytes })
    }
}

/// Checks that the file has all bytes of the tensor. This also bounds how much memory is allocated to read them.
fn check_extent(file: &dyn Bytes, s: &Source, bytes: usize) -> Result<()> {
    let length = file.size()?;
    if s.offset.checked_add(bytes as u64).is_none_or(|end| end > length) {
        bail!("{bytes} bytes at byte {} end beyond the model file, which has {length}", s.offset);
    }
    Ok(())
}

/// Rejects NaN scales, because the kernels assume that every scale is a number.
fn check_scales(layout: &Format, rows: &[u8], first: usize, row_source: usize) -> Result<()> {
    let Some(block) = (layout.find_nan)(rows) else { return Ok(()) };
    let at = block * layout.block_bytes;
    let (row, column) = (first + at / row_source, at % row_source / layout.block_bytes * layout.block_columns);
    bail!("{}'s scale of row {row}, column {column} is NaN: the file is damaged or badly converted", layout.name)
}

/// # Errors
/// The memory is not available.
fn zeroes(bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    if room.try_reserve_exact(bytes).is_err() {
        bail!("Cannot allocate {bytes} bytes to read the tensor into");
    }
    room.resize(bytes, 0);
    Ok(room)
}

fn known(id: u32) -> Result<&'static Format> {
    format(id).ok_or_else(|| Error::new(format!("Tensor type {id} is not supported")))
}

#[derive(Clone, Copy)]
struct SendPtr(*mut u8);
// SAFETY: threads write disjoint panels.
unsafe impl Send for SendPtr {}
unsafe impl Sync for SendPtr {}

impl SendPtr {
    fn get(&self) -> *mut u8 {
        self.0
    }
}
