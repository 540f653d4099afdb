//! Op: AltUp's prediction. Before a layer, each stream becomes a mixture of all streams.
use super::altup::{Mixing, Router, STREAMS, Streams};
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;
use crate::simd::{Kernel, Simd};

pub struct AltupPredict {
    streams: Streams,
    mixing: Mixing,
    /// The first stream is copied to the output, times this factor.
    scale: f32,
    out: usize,
}

impl Decode for AltupPredict {
    fn decode(o: &mut Operands) -> Result<Self> {
        let streams = Streams::decode(o)?;
        let mixing = Mixing::decode(o, streams.columns, STREAMS * STREAMS)?;
        let (scale, out) = (o.f32()?, o.step_float(Some(streams.columns))?);
        streams.are_apart(out)?;
        Ok(Self { streams, mixing, scale, out })
    }
}

impl Op for AltupPredict {
    fn run(&self, run: &Run, work: &Work) {
        let router = self.mixing.weights(run, self.streams.columns);
        for row in work.items(run.tokens()).flatten() {
            let (streams, out) = (self.streams.rows(run, row), run.float(self.out, row));
            // SAFETY: rows, widths and vectors were checked at decode.
            unsafe { run.isa.run(PredictRow { streams, router, scale: self.scale, out }) }
        }
    }
}

/// Adds to each stream i the sum over j of c[4 i + j] * streams[j], with coefficients c of the first stream. Then out =
/// scale * streams[0].
///
/// # Safety
/// All pointers hold `router.columns` floats and do not overlap; `router` has STREAMS^2 coefficients.
pub struct PredictRow {
    pub streams: [*mut f32; STREAMS],
    pub router: Router,
    pub scale: f32,
    pub out: *mut f32,
}

impl Kernel for PredictRow {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { streams, router, scale, out } = self;
        unsafe {
            let coefs = router.coefficients::<S, { STREAMS * STREAMS }>(s, streams[0]);
            for i in (0..router.columns).step_by(S::LANES) {
                let x = streams.map(|stream| s.load(stream.add(i)));
                for (to, stream) in streams.into_iter().enumerate() {
                    let mut y = x[to];
                    for (from, x) in x.into_iter().enumerate() {
                        y = s.fma(s.splat(coefs[to * STREAMS + from]), x, y);
                    }
                    s.store(stream.add(i), y);
                }
                s.store(out.add(i), s.mul(s.load(streams[0].add(i)), s.splat(scale)));
            }
        }
    }
}
