//! Weights, held once: each matrix is read from the file and packed into panels, tensor by tensor.
//!
//! The file is read with positioned reads, not mapped: everything is packed anyway, a file that shrinks is an error
//! here instead of a SIGBUS, and no page of it counts as resident.
use crate::bail;
use crate::error::{Error, Result};
use crate::kernels::{FormatKernels, FormatLayout, Kernels, layout};
use crate::memory::{Pages, Region};
use crate::pool::{Items, Pool};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// Bytes that a thread reads at a time.
const READ: usize = 1 << 20;

/// Where a tensor lies in the file.
pub struct Source {
    pub format: u32,
    pub columns: usize,
    pub rows: usize,
    pub offset: u64,
}

/// A packed matrix.
pub struct Matrix {
    pub format: u32,
    pub kernels: FormatKernels,
    pub columns: usize,
    pub rows: usize,
    pub panel_bytes: usize,
    pub panels: *const u8,
}

// SAFETY: the panels are written before the matrix is built and never after; the arena outlives it.
unsafe impl Send for Matrix {}
unsafe impl Sync for Matrix {}

pub enum Tensor {
    Matrix(Matrix),
    Vector(Vec<f32>),
}

/// All tensors of a model, by index, and the memory that their panels are in.
pub struct Weights {
    tensors: Vec<Option<Tensor>>,
    arena: Region,
    used: usize,
}

impl Weights {
    /// # Errors
    /// Where memory cannot be reserved.
    pub fn new(tensors: usize, bytes: usize) -> Result<Self> {
        let arena = Region::new(bytes, Pages::Huge, "the model's weights")?;
        Ok(Self { tensors: (0..tensors).map(|_| None).collect(), arena, used: 0 })
    }

    /// # Errors
    /// Where the index was not loaded, or is a vector.
    pub fn matrix(&self, index: usize) -> Result<&Matrix> {
        match self.tensors.get(index) {
            Some(Some(Tensor::Matrix(m))) => Ok(m),
            _ => Err(Error::new(format!("Tensor {index} is not a loaded matrix"))),
        }
    }

    /// # Errors
    /// Where the index was not loaded, or is no vector of `len` floats.
    pub fn vector(&self, index: usize, len: usize) -> Result<&[f32]> {
        match self.tensors.get(index) {
            Some(Some(Tensor::Vector(v))) if v.len() == len => Ok(v),
            _ => Err(Error::new(format!("Tensor {index} is not a loaded vector of {len} floats"))),
        }
    }

    /// Reads and packs a matrix.
    ///
    /// # Errors
    /// Unknown format, shape that the format cannot have, no room, or a file that cannot be read there.
    pub fn load_matrix(&mut self, index: usize, file: &File, s: &Source, k: &Kernels, pool: &mut Pool) -> Result<()> {
        let (layout, kernels) = formats(s.format, k)?;
        check_shape(s, &layout)?;
        let panel_bytes = (layout.panel_bytes)(s.columns, k.lanes);
        let panels = s.rows.div_ceil(k.lanes);
        let bytes = panels * panel_bytes;
        if index >= self.tensors.len() || self.arena.len() - self.used < bytes {
            bail!("Tensor {index} of {bytes} bytes does not fit into what was reserved");
        }
        let base = SendPtr(self.arena.at(self.used));
        let stride = s.columns / layout.block_columns * layout.block_bytes;
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let grain = (READ / (stride * k.lanes)).max(1);
        pool.run(&|_| {
            let mut raw = vec![0u8; grain * k.lanes * stride];
            for range in Items::new(&next, panels, grain) {
                let first = range.start * k.lanes;
                let rows = (range.len() * k.lanes).min(s.rows - first);
                raw[rows * stride..].fill(0);
                if let Err(e) = file.read_exact_at(&mut raw[..rows * stride], s.offset + (first * stride) as u64) {
                    *failure.lock().unwrap_or_else(|e| e.into_inner()) = Some(e);
                    return;
                }
                for (i, p) in range.enumerate() {
                    // SAFETY: panel p is within the tensor's bytes, and only this thread writes it.
                    let panel = unsafe { std::slice::from_raw_parts_mut(base.get().add(p * panel_bytes), panel_bytes) };
                    (layout.pack_panel)(&raw[i * k.lanes * stride..], stride, s.columns, k.lanes, panel);
                }
            }
        });
        if let Some(e) = failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
            bail!("Cannot read tensor {index} at byte {} of the model file: {e}", s.offset);
        }
        self.used += bytes;
        let matrix =
            Matrix { format: s.format, kernels, columns: s.columns, rows: s.rows, panel_bytes, panels: base.get() };
        self.tensors[index] = Some(Tensor::Matrix(matrix));
        Ok(())
    }

    /// Reads a vector (a norm's weight, a bias) as floats.
    ///
    /// # Errors
    /// As `load_matrix`.
    pub fn load_vector(&mut self, index: usize, file: &File, s: &Source) -> Result<()> {
        let Some(layout) = layout(s.format) else { bail!("Tensor type {} is not supported", s.format) };
        check_shape(s, &layout)?;
        if index >= self.tensors.len() {
            bail!("Tensor {index} is out of range");
        }
        let mut raw = vec![0; s.columns / layout.block_columns * layout.block_bytes];
        if let Err(e) = file.read_exact_at(&mut raw, s.offset) {
            bail!("Cannot read tensor {index} at byte {} of the model file: {e}", s.offset);
        }
        let mut out = vec![0.0; s.columns];
        for (block, y) in raw.chunks_exact(layout.block_bytes).zip(out.chunks_exact_mut(layout.block_columns)) {
            (layout.dequantize)(block, y);
        }
        self.tensors[index] = Some(Tensor::Vector(out));
        Ok(())
    }
}

/// Bytes that a matrix takes when packed.
///
/// # Errors
/// Unknown format, or a shape that it cannot have.
pub fn packed_bytes(s: &Source, k: &Kernels) -> Result<usize> {
    let (layout, _) = formats(s.format, k)?;
    check_shape(s, &layout)?;
    Ok(s.rows.div_ceil(k.lanes) * (layout.panel_bytes)(s.columns, k.lanes))
}

fn formats(id: u32, k: &Kernels) -> Result<(FormatLayout, FormatKernels)> {
    match (layout(id), (k.format)(id)) {
        (Some(layout), Some(kernels)) => Ok((layout, kernels)),
        _ => Err(Error::new(format!("Tensor type {id} is not supported"))),
    }
}

fn check_shape(s: &Source, layout: &FormatLayout) -> Result<()> {
    let limit = 1 << 31;
    if s.columns == 0 || s.rows == 0 || s.columns >= limit || s.rows >= limit {
        bail!("A tensor of {} x {} is not supported", s.columns, s.rows);
    }
    if !s.columns.is_multiple_of(layout.block_columns) {
        bail!("{} columns are no multiple of {}'s block of {}", s.columns, layout.name, layout.block_columns);
    }
    Ok(())
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
