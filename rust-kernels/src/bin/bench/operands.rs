//! Operands for benchmarks: seeded matrices in panels, and rows of activations.
use compy::formats::BLOCK;
use compy::formats::{Format, FormatKernels};
use compy::kernels::float_gemm::FloatRows;
use compy::kernels::gemm::{Epilogue, Gemm, corrections_len};
use compy::kernels::quant_rows::{QuantRows, row_bytes, tile_rows};
use compy::kernels::tiles::{Tiles, runs};
use compy::memory::{Pages, Region};
use compy::ops::quantize::QuantizeRow;
use compy::pool::{Items, Pool};
use compy::simd::Isa;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

/// The format with this name.
pub fn format_named(name: &str) -> Result<&'static Format, String> {
    compy::formats::format_named(name).ok_or_else(|| {
        let names: Vec<_> = compy::formats::FORMATS.iter().map(|f| f.name).collect();
        format!("A format must be one of {} (got {name:?})", names.join(", "))
    })
}

/// Packed copies of one matrix, used in turn.
pub struct Weights {
    pub rows: usize,
    pub columns: usize,
    /// Bytes of one copy.
    pub bytes: usize,
    panel_bytes: usize,
    copies: usize,
    region: Region,
    k: Isa,
    kernels: &'static FormatKernels,
}

impl Weights {
    /// `rows` is a multiple of the instruction set's lanes. Makes as many copies as fit in `total` bytes, at least
    /// one.
    pub fn new(k: Isa, name: &str, rows: usize, columns: usize, total: usize) -> Result<Self, String> {
        let layout = format_named(name)?;
        if rows == 0 || !rows.is_multiple_of(k.lanes()) || columns == 0 || !columns.is_multiple_of(BLOCK) {
            return Err(format!("Cannot measure {rows} x {columns}: wanted are multiples of {} x {BLOCK}", k.lanes()));
        }
        if !columns.is_multiple_of(layout.block_columns) {
            return Err(format!("{columns} columns are not a multiple of {name}'s block of {}", layout.block_columns));
        }
        let stride = columns / layout.block_columns * layout.block_bytes;
        let raw = raw_rows(layout, stride * rows);
        let panel_bytes = (layout.panel_bytes)(columns, k.lanes());
        let bytes = rows / k.lanes() * panel_bytes;
        let copies = total.div_ceil(bytes).max(1);
        let region = Region::new(copies * bytes, Pages::Huge, "weights").map_err(|e| e.to_string())?;
        // SAFETY: fresh memory of this size that nothing else uses.
        let all = unsafe { std::slice::from_raw_parts_mut(region.at(0), copies * bytes) };
        let (first, others) = all.split_at_mut(bytes);
        for (p, panel) in first.chunks_exact_mut(panel_bytes).enumerate() {
            (layout.pack_panel)(&raw[p * k.lanes() * stride..], stride, columns, k.lanes(), panel);
        }
        for copy in others.chunks_exact_mut(bytes) {
            copy.copy_from_slice(first);
        }
        let kernels = &layout.kernels;
        Ok(Self { rows, columns, bytes, panel_bytes, copies, region, k, kernels })
    }

    fn panels(&self) -> usize {
        self.rows / self.k.lanes()
    }

    /// The matrix's panels in tiles, as the executor distributes them.
    fn tiles(&self, m: usize, share: usize) -> Tiles {
        Tiles::new(self.k, self.kernels, self.panels(), m, share)
    }
}

/// Bytes that are valid weights of ordinary size in every format. Every call returns the same bytes.
fn raw_rows(layout: &Format, bytes: usize) -> Vec<u8> {
    let hash = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
    let value = |i: usize| f32::from(hash(i)) / 128.0 - 1.0;
    match layout.name {
        "F32" => (0..bytes / 4).flat_map(|i| value(i).to_le_bytes()).collect(),
        "F16" => (0..bytes / 2).flat_map(|i| compy::half::f32_to_f16(value(i)).to_le_bytes()).collect(),
        "BF16" => (0..bytes / 2).flat_map(|i| ((value(i).to_bits() >> 16) as u16).to_le_bytes()).collect(),
        // The first byte of a block is its exponent.
        "MXFP4" => (0..bytes).map(|i| if i.is_multiple_of(layout.block_bytes) { 120 } else { hash(i) }).collect(),
        // No half float of these bytes is subnormal, infinite or negative.
        _ => (0..bytes).map(|i| hash(i) & 0x3b | 0x04).collect(),
    }
}

/// Rows of activations, as floats and in 8 bits.
pub struct Activations {
    pub m: usize,
    pub columns: usize,
    floats: Vec<f32>,
    quant: QuantRows,
    corrections: Vec<f32>,
    _memory: Region,
}

impl Activations {
    /// The rows are in the tiles that the kernels choose for m rows.
    pub fn new(k: Isa, m: usize, columns: usize) -> Self {
        let tile = tile_rows(m, k.tile());
        let floats: Vec<f32> = (0..m * columns).map(|i| ((i * 7919) % 201) as f32 / 100.0 - 1.0).collect();
        let bytes = m.next_multiple_of(tile) * row_bytes(columns);
        let memory = Region::new(bytes, Pages::Small, "activations").expect("memory for activations");
        let quant = QuantRows { base: memory.at(0), columns, tile, paired: k.row_pairs() };
        for row in 0..m {
            // SAFETY: the row is within both.
            unsafe { k.run(QuantizeRow { x: floats.as_ptr().add(row * columns), out: &quant, row }) }
        }
        let corrections = vec![0.0; corrections_len(m, columns, 16)];
        Self { m, columns, floats, quant, corrections, _memory: memory }
    }

    pub fn prepare(&mut self, w: &Weights) {
        if let FormatKernels::Block(b) = w.kernels {
            // SAFETY: as above; the corrections have room for m rows.
            unsafe { (b.prepare)(w.k, &self.quant, self.m, self.corrections.as_mut_ptr()) }
        }
    }
}

/// Results: rows of `ldo` floats.
pub struct Output {
    pub values: Vec<f32>,
    pub ldo: usize,
}

impl Output {
    pub fn new(m: usize, ldo: usize) -> Self {
        Self { values: vec![0.0; m * ldo], ldo }
    }
}

/// Runs the kernel of W's format for some panels of a copy of W times x.
fn run_kernel(w: &Weights, copy: usize, x: &Activations, panels: Range<usize>, out: *mut f32, ldo: usize) {
    assert!(panels.end <= w.panels() && x.columns == w.columns);
    let args = Gemm {
        // SAFETY: the panel is within the copy; the caller's output has all of W's rows.
        panels: unsafe { w.region.at(copy % w.copies * w.bytes).add(panels.start * w.panel_bytes) },
        panel_bytes: w.panel_bytes,
        rows: panels.len() * w.k.lanes(),
        columns: w.columns,
        from: 0,
        to: x.m,
        out: unsafe { out.add(panels.start * w.k.lanes()) },
        ldo,
        bias: std::ptr::null(),
        epilogue: Epilogue::Store,
    };
    // SAFETY: the arguments are within W, x and the output; x was quantized and prepared for this format.
    unsafe {
        match w.kernels {
            FormatKernels::Block(b) => (b.gemm)(w.k, &args, &x.quant, x.corrections.as_ptr()),
            FormatKernels::Float(f) => {
                (f.gemm)(w.k, &args, &FloatRows { base: x.floats.as_ptr().cast_mut(), stride: x.columns })
            }
        }
    }
}

/// y = W x as a job on all threads of a pool.
pub fn multiply(pool: &mut Pool, w: &Weights, out: &mut Output, copy: usize, x: &Activations) {
    let tiles = w.tiles(x.m, w.panels() / pool.threads());
    let (total, most) = runs([tiles].into_iter());
    let next = AtomicUsize::new(0);
    let all = Shared(&(w, x, tiles, out.values.as_mut_ptr(), out.ldo));
    pool.run(&|worker| {
        let (w, x, tiles, out, ldo) = all.get();
        for range in Items::tapering(&next, total, [1, most], worker.threads()) {
            run_kernel(w, copy, x, tiles.panels_of(range), *out, *ldo);
        }
    })
    .expect("kernels do not panic");
}

/// Data that all threads read. Each thread writes its own panels' rows of the outputs.
struct Shared<'a, T: ?Sized>(&'a T);
// SAFETY: as stated there; apart from outputs, nothing behind the reference changes while a job runs.
unsafe impl<T: ?Sized> Sync for Shared<'_, T> {}
impl<T: ?Sized> Shared<'_, T> {
    fn get(&self) -> &T {
        self.0
    }
}
