//! AltUp keeps several streams of rows and mixes them with a router. Its two ops share this code. Source: "Alternating
//! Updates for Efficient Transformers" (arXiv 2301.13310); the router is Gemma 3n's.
use crate::bail;
use crate::error::Result;
use crate::executor::Run;
use crate::kernels::activations::{Function, Tanh};
use crate::program::Operands;
use crate::simd::Simd;

/// Number of streams per token. Layers compute on the first stream.
pub const STREAMS: usize = 4;
/// Number of lanes of the widest vector.
const WIDEST: usize = 16;

/// The float buffers of the streams, one buffer per stream.
pub(super) struct Streams {
    buffers: [usize; STREAMS],
    pub columns: usize,
}

impl Streams {
    /// # Errors
    /// The operands are not STREAMS different buffers of the same width, or the width is not a multiple of WIDEST.
    pub fn decode(o: &mut Operands) -> Result<Self> {
        let count = o.size()?;
        if count != STREAMS {
            bail!("there must be {STREAMS} streams (got {count})");
        }
        let first = o.step_float(None)?;
        let columns = o.buffer(first)?.columns;
        if columns == 0 || !columns.is_multiple_of(WIDEST) {
            bail!("streams must have a multiple of {WIDEST} columns (got {columns})");
        }
        let mut buffers = [first; STREAMS];
        for i in 1..STREAMS {
            buffers[i] = o.step_float(Some(columns))?;
            if buffers[..i].contains(&buffers[i]) {
                bail!("buffer {} cannot be two streams", buffers[i]);
            }
        }
        Ok(Self { buffers, columns })
    }

    /// Rejects a buffer that is one of the streams.
    pub fn are_apart(&self, buffer: usize) -> Result<()> {
        if self.buffers.contains(&buffer) {
            bail!("buffer {buffer} is also a stream that the op changes");
        }
        Ok(())
    }

    pub fn rows(&self, run: &Run, row: usize) -> [*mut f32; STREAMS] {
        self.buffers.map(|buffer| run.float(buffer, row))
    }
}

/// Indices of the router's tensors: the norm's weight, STREAMS rows of weights, and the matrix that computes the
/// coefficients.
pub(super) struct Mixing {
    norm: usize,
    router: usize,
    coefs: usize,
    count: usize,
    eps: f32,
}

impl Mixing {
    /// # Errors
    /// The vectors do not fit `columns` columns and `count` coefficients.
    pub fn decode(o: &mut Operands, columns: usize, count: usize) -> Result<Self> {
        let (norm, router, coefs, eps) = (o.size()?, o.size()?, o.size()?, o.f32()?);
        for (vector, len) in [(norm, columns), (router, STREAMS * columns), (coefs, STREAMS * count)] {
            o.vector(vector, len)?;
        }
        Ok(Self { norm, router, coefs, count, eps })
    }

    pub fn weights(&self, run: &Run, columns: usize) -> Router {
        Router {
            norm: run.vector(self.norm, columns),
            router: run.vector(self.router, STREAMS * columns),
            coefs: run.vector(self.coefs, STREAMS * self.count),
            columns,
            eps: self.eps,
        }
    }
}

/// Computes the coefficients of a row x: C tanh(R (x / rms(x) * norm) / columns).
#[derive(Clone, Copy)]
pub struct Router {
    /// The norm's weight, [columns].
    pub norm: *const f32,
    /// R: the router's weights, [STREAMS][columns].
    pub router: *const f32,
    /// C: the matrix that computes N coefficients, [N][STREAMS].
    pub coefs: *const f32,
    /// Columns of a row: a multiple of 16.
    pub columns: usize,
    pub eps: f32,
}

impl Router {
    /// # Safety
    /// The vectors have the lengths in the struct, for N coefficients; `x` holds `columns` floats.
    #[inline(always)]
    pub unsafe fn coefficients<S: Simd, const N: usize>(&self, s: S, x: *const f32) -> [f32; N] {
        let Self { norm, router, coefs, columns, eps } = *self;
        let (mut squares, mut sums) = (s.splat(0.0), [s.splat(0.0); STREAMS]);
        let mut routed = [0.0; WIDEST];
        unsafe {
            for i in (0..columns).step_by(S::LANES) {
                let v = s.load(x.add(i));
                squares = s.fma(v, v, squares);
                let v = s.mul(v, s.load(norm.add(i)));
                for (k, sum) in sums.iter_mut().enumerate() {
                    *sum = s.fma(v, s.load(router.add(k * columns + i)), *sum);
                }
            }
            let n = columns as f32;
            let factor = 1.0 / ((s.sum(squares) / n + eps).sqrt() * n);
            for (routed, sum) in routed.iter_mut().zip(sums) {
                *routed = s.sum(sum) * factor;
            }
            let tanh = Tanh::of(s, s.load(routed.as_ptr()));
            s.store(routed.as_mut_ptr(), tanh);
            std::array::from_fn(|c| (0..STREAMS).map(|k| *coefs.add(c * STREAMS + k) * routed[k]).sum())
        }
    }
}
