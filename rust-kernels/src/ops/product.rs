//! Products of a matrix's panels with the rows of an op's operand.
use crate::bail;
use crate::error::Result;
use crate::executor::Run;
use crate::formats::FormatKernels;
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::gemm::{Epilogue, Gemm, corrections_len};
use crate::kernels::quant_rows::{FineRows, QuantRows};
use crate::program::{Operands, Out, Program, ROW_ROUND};
use crate::simd::{Isa, Kernel, Simd};
use crate::weights::Matrix;
use std::ops::Range;

/// Columns of the tile that holds both planes' products if there are few rows.
const FINE_COLUMNS: usize = 256;
/// Bytes of weights that stay in a core's L2 cache from one plane's pass to the other's.
const L2_BYTES: usize = 256 * 1024;

/// Tensor indices of a matrix and its bias.
pub(super) struct Affine {
    pub weight: usize,
    bias: Option<usize>,
    /// The first row in the matrix, or in each expert's matrix.
    pub first: usize,
}

impl Affine {
    /// # Errors
    /// The words end too early. The op checks the shapes.
    pub fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self { weight: o.size()?, bias: o.optional()?, first: 0 })
    }

    /// If gate and up name the same tensor, makes them its halves of `rows` rows each. Returns the tensor's rows.
    ///
    /// # Errors
    /// The second half does not start with a panel in every instruction set.
    pub fn halve(gate: &Self, up: &mut Self, rows: usize) -> Result<usize> {
        if gate.weight != up.weight {
            return Ok(rows);
        }
        if !rows.is_multiple_of(ROW_ROUND) {
            bail!("halves of tensor {} must have a multiple of {ROW_ROUND} rows (got {rows})", up.weight);
        }
        up.first = rows;
        Ok(2 * rows)
    }

    /// Checks that the bias, if any, has `rows` numbers.
    pub fn check_bias(&self, o: &Operands, rows: usize) -> Result<()> {
        self.bias.map_or(Ok(()), |bias| o.vector(bias, rows).map(|_| ()))
    }

    /// The bias from row `row` of the tensor's `rows` rows on; null without a bias.
    pub fn bias(&self, run: &Run, rows: usize, row: usize) -> *const f32 {
        self.bias.map_or(std::ptr::null(), |bias| run.vector(bias, rows).wrapping_add(row))
    }
}

/// Rows of x, in the forms (float, quantized) that exist.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub m: usize,
    pub float: Option<FloatRows>,
    pub quant: Option<QuantRows>,
    pub fine: Option<FineRows>,
}

/// Products with x on one thread. It prepares the corrections of a format once.
pub(super) struct Product {
    isa: Isa,
    x: Operand,
    /// Rows of x.
    pub m: usize,
    corrections: *mut f32,
    /// Tile for both planes' products, if there are few rows.
    tile: *mut f32,
    /// The format of the corrections, and whether they are for both planes.
    prepared: Option<(u32, bool)>,
}

impl Product {
    /// Floats of scratch memory.
    pub fn scratch(p: &Program, x: Out) -> usize {
        let Some(index) = x.quant.or(x.fine) else { return 0 };
        let most = p.most_rows(p.buffers[index].rows).expect("checked at decode");
        Self::scratch_of(most, p.buffers[index].columns, x.fine.is_some())
    }

    /// The same for at most `rows` rows of x, with two planes if `fine`.
    pub fn scratch_of(rows: usize, columns: usize, fine: bool) -> usize {
        let (planes, tile) = if fine { (2, ROW_ROUND * FINE_COLUMNS) } else { (1, 0) };
        let rows = planes * rows.next_multiple_of(ROW_ROUND);
        corrections_len(rows, columns, ROW_ROUND).next_multiple_of(16) + tile
    }

    /// `scratch` holds as many floats as the function `scratch` returns.
    pub fn new(run: &Run, x: Out, scratch: *mut f32) -> Self {
        let x = Operand {
            m: run.rows_of_any(x),
            float: x.float.map(|i| run.float_rows(i)),
            quant: x.quant.map(|i| run.quant(i)),
            fine: x.fine.map(|i| run.fine(i)),
        };
        Self::of(run.isa, x, scratch)
    }

    /// Products with rows that are not a whole buffer. `scratch` has the tile for two planes in front, then the
    /// corrections of these rows.
    pub fn of(isa: Isa, x: Operand, scratch: *mut f32) -> Self {
        let tile = if x.fine.is_some() { ROW_ROUND * FINE_COLUMNS } else { 0 };
        Self { isa, x, m: x.m, corrections: scratch.wrapping_add(tile), tile: scratch, prepared: None }
    }

    /// Multiplies with the matrix's kernel. Quantized weights read two planes if x has no single plane.
    ///
    /// # Safety
    /// `args` has panels of the matrix, rows of x, and an output with room. x has a buffer that the matrix reads.
    pub unsafe fn multiply(&mut self, args: &Gemm, matrix: &Matrix) {
        match &matrix.format.kernels {
            FormatKernels::Block(k) => {
                let Some(rows) = self.x.quant else {
                    // SAFETY: guaranteed by the caller.
                    return unsafe { self.multiply_finely(args, matrix) };
                };
                // SAFETY: x holds m rows, and the scratch was sized for them.
                unsafe {
                    if self.prepared != Some((matrix.format.id, false)) {
                        (k.prepare)(self.isa, &rows, self.m, self.corrections);
                        self.prepared = Some((matrix.format.id, false));
                    }
                    (k.gemm)(self.isa, args, &rows, self.corrections);
                }
            }
            FormatKernels::Float(k) => {
                let rows = self.x.float.expect("checked at decode");
                // SAFETY: as above.
                unsafe { (k.gemm)(self.isa, args, &rows) }
            }
        }
    }

    /// `multiply` with x in two planes.
    ///
    /// # Safety
    /// As `multiply`.
    pub unsafe fn multiply_finely(&mut self, args: &Gemm, matrix: &Matrix) {
        let FormatKernels::Block(k) = &matrix.format.kernels else { unreachable!("checked at decode") };
        let (isa, x) = (self.isa, self.x.fine.expect("checked at decode"));
        let (from, to) = (x.rest + args.from, x.rest + args.to);
        // SAFETY: x holds both planes of all rows, and the scratch was sized for them.
        unsafe {
            if self.prepared != Some((matrix.format.id, true)) {
                (k.prepare)(isa, &x.rows, x.rest + self.m, self.corrections);
                self.prepared = Some((matrix.format.id, true));
            }
        }
        let few = to <= isa.tile(); // one tile then holds both planes of all rows
        let panels = if few { FINE_COLUMNS / isa.lanes() } else { (L2_BYTES / args.panel_bytes).max(1) };
        let step = panels * isa.lanes();
        let times = times_added(args.epilogue);
        for row in (0..args.rows).step_by(step) {
            let first = some_rows(args, isa.lanes(), row..args.rows.min(row + step));
            let rest = Gemm { from, to, bias: std::ptr::null(), epilogue: Epilogue::Add(times), ..first };
            let both = Gemm { from: 0, out: self.tile, ldo: FINE_COLUMNS, epilogue: Epilogue::Store, ..rest };
            // SAFETY: as above; the tile holds all rows of both planes and FINE_COLUMNS of each.
            unsafe {
                if few {
                    (k.gemm)(isa, &both, &x.rows, self.corrections);
                    isa.run(AddPlanes { args: &first, products: self.tile, m: self.m });
                } else {
                    (k.gemm)(isa, &first, &x.rows, self.corrections);
                    (k.gemm)(isa, &rest, &x.rows, self.corrections);
                }
            }
        }
    }
}

/// The part of a product for some rows of W, which start with a panel.
pub(super) fn some_rows(args: &Gemm, lanes: usize, rows: Range<usize>) -> Gemm {
    // SAFETY: the rows are within args' rows.
    unsafe {
        Gemm {
            panels: args.panels.add(rows.start / lanes * args.panel_bytes),
            rows: rows.len(),
            out: args.out.add(rows.start),
            bias: if args.bias.is_null() { args.bias } else { args.bias.add(rows.start) },
            ..*args
        }
    }
}

/// Factor of the second plane's products.
fn times_added(epilogue: Epilogue) -> f32 {
    match epilogue {
        Epilogue::Store => 1.0,
        Epilogue::Add(times) => times,
    }
}

/// Combines the products of m rows of x with those of their second planes behind them. The result and the order of
/// float operations equal those of one pass over each plane.
///
/// # Safety
/// `products` holds 2 m rows of FINE_COLUMNS; `args` has m rows, and bias and output for them.
struct AddPlanes<'a> {
    args: &'a Gemm,
    products: *const f32,
    m: usize,
}

impl Kernel for AddPlanes<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { args, products, m } = self;
        for row in 0..m {
            for i in (0..args.rows).step_by(S::LANES) {
                let left = (args.rows - i).min(S::LANES);
                // SAFETY: guaranteed by the caller; an incomplete vector is a padded copy.
                unsafe {
                    let [coarse, rest] = [row, m + row].map(|r| s.load(products.add(r * FINE_COLUMNS + i)));
                    let out = args.out.add(row * args.ldo + i);
                    let bias = if args.bias.is_null() { args.bias } else { args.bias.add(i) };
                    if left == S::LANES {
                        add_planes(s, args.epilogue, [coarse, rest], bias, out);
                        continue;
                    }
                    let (mut y, mut b) = ([0f32; 16], [0f32; 16]);
                    std::ptr::copy_nonoverlapping(out, y.as_mut_ptr(), left);
                    if !bias.is_null() {
                        std::ptr::copy_nonoverlapping(bias, b.as_mut_ptr(), left);
                    }
                    let bias = if bias.is_null() { bias } else { b.as_ptr() };
                    add_planes(s, args.epilogue, [coarse, rest], bias, y.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(y.as_ptr(), out, left);
                }
            }
        }
    }
}

/// One vector of both planes' products: bias, epilogue and store.
#[inline(always)]
unsafe fn add_planes<S: Simd>(s: S, epilogue: Epilogue, [coarse, rest]: [S::F; 2], bias: *const f32, out: *mut f32) {
    unsafe {
        let mut y = coarse;
        if !bias.is_null() {
            y = s.add(y, s.load(bias));
        }
        let times = s.splat(times_added(epilogue));
        if let Epilogue::Add(_) = epilogue {
            y = s.fma(times, y, s.load(out));
        }
        s.store(out, s.fma(times, rest, y));
    }
}
