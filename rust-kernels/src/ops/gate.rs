//! Op: multiplies values by gates, element by element or with one gate per run of columns, such as a head or a row. An
//! activation may be applied to the gate.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::{Function, Gelu};
use crate::kernels::softplus::softplus;
use crate::program::{Operands, Rows};
use crate::simd::{Kernel, Simd, exp};

/// The activation that is applied to the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateActivation {
    None,
    Sigmoid,
    /// GELU with the tanh approximation.
    Gelu,
    /// ln(1 + e^x).
    Softplus,
}

pub struct Gate {
    gate: usize,
    activation: GateActivation,
    x: usize,
    /// The first column of x that the op reads.
    from: usize,
    out: usize,
    /// Whether the product is added to the contents of `out`.
    add: bool,
    columns: usize,
    /// Number of gates of a row: one per column, or one per run of columns.
    gates: usize,
}

impl Decode for Gate {
    fn decode(o: &mut Operands) -> Result<Self> {
        let gate = o.step_float(None)?;
        let activation = match o.size()? {
            0 => GateActivation::None,
            1 => GateActivation::Sigmoid,
            2 => GateActivation::Gelu,
            3 => GateActivation::Softplus,
            code => bail!("unknown activation {code} of a gate"),
        };
        let (x, from) = (o.step_float(None)?, o.size()?);
        let (out, add) = match [o.optional()?, o.optional()?] {
            [Some(out), None] => (out, false),
            [None, Some(to)] => (to, true),
            _ => bail!("a product is either written or added"),
        };
        o.is_float(out, None)?;
        o.rows_are(out, Rows::Step)?;
        let (gates, width, columns) = (o.buffer(gate)?.columns, o.buffer(x)?.columns, o.buffer(out)?.columns);
        if gates == 0 || !columns.is_multiple_of(gates) {
            bail!("the number of gates must divide the {columns} columns (got {gates})");
        }
        if from.checked_add(columns).is_none_or(|end| end > width) {
            bail!("{columns} columns from column {from} on do not fit buffer {x} of {width} columns");
        }
        if gate == out || x == out {
            bail!("buffer {out} is both read and written");
        }
        Ok(Self { gate, activation, x, from, out, add, columns, gates })
    }
}

impl Op for Gate {
    fn run(&self, run: &Run, work: &Work) {
        let &Self { activation, add, columns, gates, .. } = self;
        // Each gate of a run is a call of its own.
        let (single, calls) = if gates == columns { (false, 1) } else { (true, gates) };
        let run_length = columns / calls;
        for row in work.items(run.tokens()).flatten() {
            let (gate, out) = (run.float(self.gate, row), run.float(self.out, row));
            let x = run.float(self.x, row).wrapping_add(self.from);
            // SAFETY: rows and widths were checked at decode.
            unsafe {
                for i in 0..calls {
                    let (gate, x, out) = (gate.add(i), x.add(i * run_length), out.add(i * run_length));
                    run.isa.run(GateRow { gate, single, activation, x, columns: run_length, out, add });
                }
            }
        }
    }
}

/// Computes out = activation(gate) * x for one row. With `add` it adds the product to `out`.
///
/// # Safety
/// `x` and `out` hold `columns` floats. `gate` holds the same number, or one float if `single`.
pub struct GateRow {
    pub gate: *const f32,
    pub single: bool,
    pub activation: GateActivation,
    pub x: *const f32,
    pub columns: usize,
    pub out: *mut f32,
    pub add: bool,
}

impl Kernel for GateRow {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { gate, single, columns, x, out, .. } = self;
        let whole = columns / S::LANES * S::LANES;
        unsafe {
            let one = if single { activate(s, self.activation, s.splat(*gate)) } else { s.splat(0.0) };
            for i in (0..whole).step_by(S::LANES) {
                let g = if single { one } else { activate(s, self.activation, s.load(gate.add(i))) };
                self.write(s, g, x.add(i), out.add(i));
            }
            if whole < columns {
                // The last few columns are computed in the same way, on copies padded to a whole vector.
                let left = columns - whole;
                let [mut gates, mut xs, mut outs] = [[0f32; 16]; 3];
                std::ptr::copy_nonoverlapping(x.add(whole), xs.as_mut_ptr(), left);
                std::ptr::copy_nonoverlapping(out.add(whole), outs.as_mut_ptr(), left);
                let mut g = one;
                if !single {
                    std::ptr::copy_nonoverlapping(gate.add(whole), gates.as_mut_ptr(), left);
                    g = activate(s, self.activation, s.load(gates.as_ptr()));
                }
                self.write(s, g, xs.as_ptr(), outs.as_mut_ptr());
                std::ptr::copy_nonoverlapping(outs.as_ptr(), out.add(whole), left);
            }
        }
    }
}

impl GateRow {
    /// Computes and writes one vector of `out`.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, gate: S::F, x: *const f32, out: *mut f32) {
        unsafe {
            let before = if self.add { s.load(out) } else { s.splat(0.0) };
            s.store(out, s.fma(gate, s.load(x), before));
        }
    }
}

#[inline(always)]
fn activate<S: Simd>(s: S, activation: GateActivation, x: S::F) -> S::F {
    let one = s.splat(1.0);
    match activation {
        GateActivation::None => x,
        GateActivation::Sigmoid => {
            let x = s.max(s.splat(-88.0), s.min(s.splat(88.0), x));
            // x - x is 0 for a number and NaN for NaN, which `exp` would treat like -infinity.
            s.div(s.add(one, s.sub(x, x)), s.add(one, exp(s, s.sub(s.splat(0.0), x))))
        }
        GateActivation::Gelu => Gelu::of(s, x),
        GateActivation::Softplus => softplus(s, x),
    }
}
