//! Tests Kimi Delta Attention: it agrees with f64, and results are bit-identical for every split of the tokens.
use super::delta::cuts;
use super::support::{Guarded, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::kernels::norm::Outputs;
use compy::ops::kda::{KdaHead, scratch_len};
use compy::simd::Isa;

/// One head: rows of query, key and value, gates, and the initial state.
struct Kda {
    dim: usize,
    tokens: usize,
    qkv: Vec<f32>,
    gate: Vec<f32>,
    alpha: Vec<f32>,
    beta: Vec<f32>,
    bias: Vec<f32>,
    norm: Vec<f32>,
    decay: f32,
    bound: f32,
    /// The initial state in the kernel's own layout.
    state: Vec<f32>,
}

impl Kda {
    fn new(random: &mut Random) -> Self {
        let dim = 32 * random.pick(&[1, 2, 4]);
        let tokens = random.pick(&[1, 2, 15, 16, 17, 50]);
        let floats = |r: &mut Random, n: usize, size: f32| (0..n).map(|_| size * r.unit()).collect::<Vec<f32>>();
        let mut qkv = floats(random, tokens * 3 * dim, 1.0);
        for row in qkv.chunks_mut(3 * dim) {
            for (vector, length) in row.chunks_mut(dim).zip([1.0 / (dim as f32).sqrt(), 1.0]) {
                let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                vector.iter_mut().for_each(|x| *x *= length / norm);
            }
        }
        let bound = random.pick(&[0.0, -5.0]);
        let rate = 1.001 + random.unit();
        Self {
            dim,
            tokens,
            qkv,
            gate: floats(random, tokens * dim, 4.0),
            alpha: floats(random, tokens * dim, 3.0),
            beta: floats(random, tokens, 3.0),
            bias: floats(random, dim, 1.0),
            norm: floats(random, dim, 1.0),
            decay: if bound == 0.0 { -rate } else { rate },
            bound,
            state: floats(random, dim * dim, 0.1),
        }
    }

    /// Returns the index in the state of value dimension v and key dimension k.
    fn place(&self, lanes: usize, v: usize, k: usize) -> usize {
        let tile = 2 * lanes;
        v / tile * tile * self.dim + k * tile + v % tile
    }

    fn run(&self, k: Isa, ends: &[usize], b: &mut [Guarded; 4]) -> (Vec<f32>, Vec<f32>) {
        let dim = self.dim;
        let [qkv, state, out, scratch] = b;
        let (qkv, state) = (qkv.copy(&self.qkv).as_ptr(), state.copy(&self.state));
        let out = out.tail::<f32>(self.tokens * dim);
        let outputs = Outputs { float: out.as_mut_ptr(), float_stride: dim, quant: None, fine: None };
        let mut start = 0;
        for end in ends {
            // SAFETY: all rows from `start` to `end` are in the buffers.
            unsafe {
                let row = qkv.add(start * 3 * dim);
                k.run(&KdaHead {
                    q: row,
                    k: row.add(dim),
                    v: row.add(2 * dim),
                    stride: 3 * dim,
                    gate: self.gate.as_ptr().add(start * dim),
                    gate_stride: dim,
                    alpha: self.alpha.as_ptr().add(start * dim),
                    alpha_stride: dim,
                    beta: self.beta.as_ptr().add(start),
                    beta_stride: 1,
                    decay: self.decay,
                    bias: self.bias.as_ptr(),
                    bound: self.bound,
                    norm: self.norm.as_ptr(),
                    eps: 1e-6,
                    state: state.as_mut_ptr(),
                    dim,
                    tokens: end - start,
                    out: &outputs,
                    row: start,
                    column: 0,
                    scratch: scratch.tail::<f32>(scratch_len(dim)).as_mut_ptr(),
                });
            }
            start = *end;
        }
        (out.to_vec(), state.to_vec())
    }

    /// Returns all results and the final state, computed by the recurrence in f64.
    fn reference(&self, lanes: usize) -> (Vec<f64>, Vec<f64>) {
        let dim = self.dim;
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut state: Vec<f64> = self.state.iter().map(|x| f64::from(*x)).collect();
        let mut out = Vec::new();
        for t in 0..self.tokens {
            let part =
                |i: usize| self.qkv[(3 * t + i) * dim..][..dim].iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let (q, k, v) = (part(0), part(1), part(2));
            let decay = |c: usize| {
                let (x, rate) = (f64::from(self.alpha[t * dim + c] + self.bias[c]), f64::from(self.decay));
                let bound = f64::from(self.bound);
                (if bound == 0.0 { rate * x.exp().ln_1p() } else { bound * sigmoid(rate * x) }).exp()
            };
            let beta = sigmoid(f64::from(self.beta[t]));
            let mut y = vec![0.0; dim];
            for r in 0..dim {
                let at: Vec<usize> = (0..dim).map(|c| self.place(lanes, r, c)).collect();
                (0..dim).for_each(|c| state[at[c]] *= decay(c));
                let seen: f64 = (0..dim).map(|c| state[at[c]] * k[c]).sum();
                (0..dim).for_each(|c| state[at[c]] += beta * (v[r] - seen) * k[c]);
                y[r] = (0..dim).map(|c| state[at[c]] * q[c]).sum();
            }
            let rms = (y.iter().map(|y| y * y).sum::<f64>() / dim as f64 + 1e-6).sqrt();
            let gate = |c: usize| sigmoid(f64::from(self.gate[t * dim + c]));
            out.extend((0..dim).map(|c| y[c] / rms * f64::from(self.norm[c]) * gate(c)));
        }
        (out, state)
    }
}

fn kda_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 4]) {
    let kda = Kda::new(random);
    let whole = kda.run(k, &[kda.tokens], buffers);
    let want = kda.reference(k.lanes());
    for (got, want, what) in [(&whole.0, &want.0, "result"), (&whole.1, &want.1, "state")] {
        let size = want.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_near(*got, *want, 2e-5 * size, || format!("{} {what} {i}, {} wide", k.name(), kda.dim));
        }
    }
    let cut = kda.run(k, &cuts(random, kda.tokens), buffers);
    assert_same_bits(&cut.0, &whole.0, || format!("{} cut", k.name()));
    assert_same_bits(&cut.1, &whole.1, || format!("{} state", k.name()));
}

#[test]
fn kda_matches_f64_and_is_independent_of_splits() {
    on_every_isa("kda", |k| {
        let (mut random, mut buffers) = (Random::new(13), [(); 4].map(|()| Guarded::new(1 << 17)));
        let cases = share(60);
        (0..cases).for_each(|_| kda_case(k, &mut random, &mut buffers));
        cases
    });
}
