//! Op: AltUp's correction. After a layer, each stream is corrected by a share of the error of the first stream's
//! prediction.
use super::altup::{Mixing, Router, STREAMS, Streams};
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::{Outputs, scale_by};
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};

pub struct AltupCorrect {
    /// Buffer of the layer's result.
    x: usize,
    streams: Streams,
    mixing: Mixing,
    scale: usize,
    out: Out,
}

impl Decode for AltupCorrect {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, streams) = (o.step_float(None)?, Streams::decode(o)?);
        let columns = streams.columns;
        o.is_float(x, Some(columns))?;
        let mixing = Mixing::decode(o, columns, STREAMS)?;
        let (scale, out) = (o.size()?, o.fine_out()?);
        o.vector(scale, columns)?;
        o.width(out, columns)?;
        o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        for buffer in out.forms().chain([x]) {
            streams.are_apart(buffer)?;
        }
        Ok(Self { x, streams, mixing, scale, out })
    }
}

impl Op for AltupCorrect {
    fn scratch(&self, _: &Program) -> usize {
        self.streams.columns
    }

    fn run(&self, run: &Run, work: &Work) {
        let columns = self.streams.columns;
        let (router, out) = (self.mixing.weights(run, columns), run.outputs(self.out));
        let (scale, scratch) = (run.vector(self.scale, columns), work.scratch);
        for row in work.items(run.tokens()).flatten() {
            let (x, streams) = (run.float(self.x, row), self.streams.rows(run, row));
            // SAFETY: rows, widths and vectors were checked at decode.
            unsafe { run.isa.run(CorrectRow { x, streams, router, scale, out: &out, row, scratch }) }
        }
    }
}

/// Computes streams[i] += (1 + c[i]) * (x - streams[0]) for one row, with coefficients c of x. Then y = streams[0] *
/// scale.
///
/// # Safety
/// `x`, the streams, `scale` and `scratch` hold `router.columns` floats and do not overlap. `router` has STREAMS
/// coefficients; the outputs have the row.
pub struct CorrectRow<'a> {
    pub x: *const f32,
    pub streams: [*mut f32; STREAMS],
    pub router: Router,
    pub scale: *const f32,
    pub out: &'a Outputs,
    pub row: usize,
    /// Receives the row if there is no float output.
    pub scratch: *mut f32,
}

impl Kernel for CorrectRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, streams, router, scale, out, row, scratch } = self;
        let n = router.columns;
        unsafe {
            let coefs = router.coefficients::<S, STREAMS>(s, x).map(|c| 1.0 + c);
            for i in (0..n).step_by(S::LANES) {
                let wrong = s.sub(s.load(x.add(i)), s.load(streams[0].add(i)));
                for (stream, c) in streams.into_iter().zip(coefs) {
                    s.store(stream.add(i), s.fma(s.splat(c), wrong, s.load(stream.add(i))));
                }
            }
            let y = out.float_row(row, scratch);
            scale_by(s, streams[0], scale, n, 1.0, y);
            out.quantize(s, y, row);
        }
    }
}
