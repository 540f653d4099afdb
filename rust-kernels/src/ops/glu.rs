//! Gated units: activation(gate x) * (up x). `activated` is the same without a gate.
use super::product::{Affine, Product};
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::{
    Activation, Function, Gelu, GeluErf, Relu, Silu, SquaredRelu, Tanh, limited_swiglu, swiglu_oai,
};
use crate::kernels::gemm::{Epilogue, Gemm};
use crate::kernels::norm::Outputs;
use crate::kernels::tiles::{cut_rows, cuts, whole_blocks};
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Rows and columns of the tiles of products.
const ROWS: usize = 128;
const COLUMNS: usize = 288;

/// activation(gate x) * (up x).
pub struct Glu(Unit);

/// A layer's products, followed by an activation.
pub(super) struct Unit {
    pub x: Out,
    /// The operand of the activation.
    inner: Affine,
    /// The factor of the activation's results.
    up: Option<Affine>,
    /// Rows of the gate matrix, and of the up matrix.
    rows: usize,
    activation: Activation,
    /// As `ActivationRow::limit`.
    limit: f32,
    out: Out,
}

impl Decode for Glu {
    fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self(Unit::decode(o, true)?))
    }
}

impl Op for Glu {
    fn scratch(&self, p: &Program) -> usize {
        self.0.scratch(p)
    }

    fn takes_copies(&self) -> Option<(Out, Vec<usize>)> {
        Some(self.0.takes_copies())
    }

    fn run(&self, run: &Run, work: &Work) {
        self.0.run(run, work);
    }
}

impl Unit {
    /// # Errors
    /// The words are not such an op, or its operands do not fit.
    pub fn decode(o: &mut Operands, gated: bool) -> Result<Self> {
        let (x, inner) = (o.out()?, Affine::decode(o)?);
        let mut up = if gated { Some(Affine::decode(o)?) } else { None };
        let (activation, limit) = Activation::decode(o, gated)?;
        let out = o.out()?;
        let (columns, width) = (o.columns(x)?, o.columns(out)?);
        o.same_rows(&[x.float, x.quant, x.fine, out.float, out.quant, out.fine])?;
        o.width(out, width)?;
        let rows = up.as_mut().map_or(Ok(width), |up| Affine::halve(&inner, up, width))?;
        for part in [Some(&inner), up.as_ref()].into_iter().flatten() {
            o.shape(part.weight, rows, columns)?;
            o.reads(part.weight, x)?;
            part.check_bias(o, rows)?;
        }
        Ok(Self { x, inner, up, rows: width, activation, limit, out })
    }

    pub fn scratch(&self, p: &Program) -> usize {
        2 * ROWS * COLUMNS + Product::scratch(p, self.x)
    }

    pub fn takes_copies(&self) -> (Out, Vec<usize>) {
        (self.x, self.out.forms().collect())
    }

    pub fn run(&self, run: &Run, work: &Work) {
        let mut product = Product::new(run, self.x, work.scratch.wrapping_add(2 * ROWS * COLUMNS));
        let (m, width, parts) = (product.m, self.rows, self.parts());
        let formats = parts.map(|part| &run.matrix(part.weight).format.kernels);
        let step = whole_blocks(run.isa, formats, width, m, work.threads);
        let cuts = if width.is_multiple_of(step) { cuts(m, width / step, work.threads) } else { 1 };
        // A run of columns may continue in the next part of the rows.
        for range in work.tapering(cuts * width, [step, COLUMNS]) {
            for cut in range.start / width..range.end.div_ceil(width) {
                let first = cut * width;
                let columns = range.start.max(first) - first..range.end.min(first + width) - first;
                let rows = cut_rows(m, cut, cuts);
                for from in rows.clone().step_by(ROWS) {
                    self.tile(run, &mut product, work.scratch, columns.clone(), from..rows.end.min(from + ROWS));
                }
            }
        }
    }

    /// The operand and the factor of the activation. Without a factor, the operand twice.
    fn parts(&self) -> [&Affine; 2] {
        [&self.inner, self.up.as_ref().unwrap_or(&self.inner)]
    }

    /// Computes some columns of at most ROWS rows. `scratch` starts with the tiles of products.
    fn tile(&self, run: &Run, product: &mut Product, scratch: *mut f32, columns: Range<usize>, rows: Range<usize>) {
        let tiles = [scratch, scratch.wrapping_add(ROWS * COLUMNS)];
        for (part, tile) in self.parts().into_iter().zip(tiles).take(1 + usize::from(self.up.is_some())) {
            let (matrix, first) = (run.matrix(part.weight), part.first + columns.start);
            let args = Gemm {
                panels: matrix.panels.wrapping_add(first / run.isa.lanes() * matrix.panel_bytes),
                panel_bytes: matrix.panel_bytes,
                rows: columns.len(),
                columns: matrix.columns,
                from: rows.start,
                to: rows.end,
                out: tile,
                ldo: COLUMNS,
                bias: part.bias(run, matrix.rows, first),
                epilogue: Epilogue::Store,
            };
            // SAFETY: the columns start with a block, so with a panel; the tile holds them.
            unsafe { product.multiply(&args, matrix) }
        }
        let out = run.outputs(self.out);
        for row in rows.clone() {
            let [x, up] = tiles.map(|tile| tile.wrapping_add((row - rows.start) * COLUMNS));
            let up = if self.up.is_some() { up } else { std::ptr::null_mut() };
            let (activation, limit, n, start) = (self.activation, self.limit, columns.len(), columns.start);
            // SAFETY: the row is within the tiles and the outputs.
            unsafe { run.isa.run(ActivationRow { activation, limit, x, up, n, out: &out, row, start }) }
        }
    }
}

/// Columns `start..start + n` of one row: y = activation(x) * up, or activation(x) if `up` is null. Overwrites `x`.
///
/// # Safety
/// `x`, and `up` unless null, hold `n` floats, padded to whole vectors. With a quantized output, `start` and `n` are
/// multiples of 32. The outputs have the row. `up` is not null for `Activation::SwigluOai` or with a limit.
pub struct ActivationRow<'a> {
    pub activation: Activation,
    /// Bound of SwiGLU's two factors, as in `limited_swiglu`; 0 means none.
    pub limit: f32,
    pub x: *mut f32,
    pub up: *const f32,
    pub n: usize,
    pub out: &'a Outputs,
    pub row: usize,
    pub start: usize,
}

impl Kernel for ActivationRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { activation, limit, x, up, n, out, row, start } = self;
        unsafe {
            match activation {
                Activation::Silu if limit > 0.0 => {
                    for i in (0..n).step_by(S::LANES) {
                        s.store(x.add(i), limited_swiglu(s, s.load(x.add(i)), s.load(up.add(i)), limit));
                    }
                }
                Activation::Silu => apply::<S, Silu>(s, x, up, n),
                Activation::Gelu => apply::<S, Gelu>(s, x, up, n),
                Activation::GeluErf => apply::<S, GeluErf>(s, x, up, n),
                Activation::SquaredRelu => apply::<S, SquaredRelu>(s, x, up, n),
                Activation::Tanh => apply::<S, Tanh>(s, x, up, n),
                Activation::Relu => apply::<S, Relu>(s, x, up, n),
                Activation::SwigluOai => {
                    for i in (0..n).step_by(S::LANES) {
                        s.store(x.add(i), swiglu_oai(s, s.load(x.add(i)), s.load(up.add(i))));
                    }
                }
            }
            out.put(s, x, n, row, start);
        }
    }
}

/// x = F(x) * up, or F(x) if `up` is null.
#[inline(always)]
unsafe fn apply<S: Simd, F: Function>(s: S, x: *mut f32, up: *const f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let y = F::of(s, s.load(x.add(i)));
            s.store(x.add(i), if up.is_null() { y } else { s.mul(y, s.load(up.add(i))) });
        }
    }
}
