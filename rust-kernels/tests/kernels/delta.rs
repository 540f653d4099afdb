//! Tests the kernels of recurrent layers: they agree with f64, and results are bit-identical for every split of the
//! tokens.
use super::support::{Guarded, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::kernels::norm::Outputs;
use compy::ops::delta_rule::{DeltaHead, scratch_len};
use compy::ops::short_conv::{ConvHead, TAPS};
use compy::simd::Isa;

/// Returns random split points in 1..=tokens; the last is `tokens`.
pub fn cuts(random: &mut Random, tokens: usize) -> Vec<usize> {
    let mut at: Vec<usize> = (1..tokens).filter(|_| random.below(3) == 0).collect();
    at.push(tokens);
    at
}

pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

struct Conv {
    dim: usize,
    stride: usize,
    tokens: usize,
    length: f32,
    x: Vec<f32>,
    taps: Vec<f32>,
    bias: Option<Vec<f32>>,
    state: Vec<f32>,
}

impl Conv {
    fn new(random: &mut Random) -> Self {
        let dim = 16 * random.between(1, 16);
        let (stride, tokens) = (dim + 16 * random.below(3), random.between(1, 9));
        let floats = |r: &mut Random, n: usize| (0..n).map(|_| 2.0 * r.unit()).collect();
        Self {
            dim,
            stride,
            tokens,
            length: random.pick(&[0.0, 1.0, 0.125]),
            x: floats(random, (tokens - 1) * stride + dim),
            taps: floats(random, TAPS * dim),
            bias: (random.below(2) == 0).then(|| floats(random, dim)),
            state: floats(random, (TAPS - 1) * dim),
        }
    }

    /// Runs the kernel. Returns the results, which replace the inputs, and the state after the last token.
    fn run(&self, k: Isa, ends: &[usize], buffers: &mut [Guarded; 4]) -> (Vec<f32>, Vec<f32>) {
        let [x, taps, state, bias] = buffers;
        let bias = self.bias.as_ref().map_or(std::ptr::null(), |values| bias.copy(values).as_ptr());
        let (x, taps, state) = (x.copy(&self.x), taps.copy(&self.taps), state.copy(&self.state));
        let mut start = 0;
        for end in ends {
            let args = ConvHead {
                // SAFETY: the token is in the buffer.
                x: unsafe { x.as_mut_ptr().add(start * self.stride) },
                stride: self.stride,
                tokens: end - start,
                taps: taps.as_ptr(),
                bias,
                state: state.as_mut_ptr(),
                dim: self.dim,
                length: self.length,
                eps: 1e-6,
            };
            // SAFETY: the buffers hold what the struct says.
            unsafe { k.run(&args) }
            start = *end;
        }
        (x.to_vec(), state.to_vec())
    }

    /// Returns token t's results, computed in f64.
    fn reference(&self, t: usize) -> Vec<f64> {
        let input = |i: usize, c: usize| {
            let x = if i < TAPS - 1 { self.state[i * self.dim + c] } else { self.x[(i + 1 - TAPS) * self.stride + c] };
            f64::from(x)
        };
        let bias = |c: usize| self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[c]));
        let tapped =
            |c: usize| (0..TAPS).map(|i| f64::from(self.taps[i * self.dim + c]) * input(t + i, c)).sum::<f64>();
        let sum = |c: usize| bias(c) + tapped(c);
        let mut y: Vec<f64> = (0..self.dim).map(|c| silu(sum(c))).collect();
        if self.length > 0.0 {
            let norm = y.iter().map(|y| y * y).sum::<f64>().sqrt().max(1e-6);
            y.iter_mut().for_each(|y| *y *= f64::from(self.length) / norm);
        }
        y
    }
}

fn conv_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 4]) {
    let conv = Conv::new(random);
    let (whole, state) = conv.run(k, &[conv.tokens], buffers);
    for t in 0..conv.tokens {
        let want = conv.reference(t);
        for c in 0..conv.dim {
            let got = whole[t * conv.stride + c];
            assert_near(got, want[c], 1e-5, || format!("{} token {t}, channel {c} of {}", k.name(), conv.dim));
        }
    }
    let cut = conv.run(k, &cuts(random, conv.tokens), buffers);
    assert_same_bits(&cut.0, &whole, || format!("{} cut", k.name()));
    assert_same_bits(&cut.1, &state, || format!("{} state", k.name()));
}

#[test]
fn short_conv_matches_f64_and_is_independent_of_splits() {
    on_every_isa("short_conv", |k| {
        let (mut random, mut buffers) = (Random::new(11), [(); 4].map(|()| Guarded::new(1 << 14)));
        let cases = share(2_000);
        (0..cases).for_each(|_| conv_case(k, &mut random, &mut buffers));
        cases
    });
}

/// One delta rule head: rows of query, key and value, gates, and the initial state.
struct Delta {
    dim: usize,
    tokens: usize,
    qkv: Vec<f32>,
    gate: Vec<f32>,
    alpha: Vec<f32>,
    beta: Vec<f32>,
    norm: Vec<f32>,
    decay: f32,
    bias: f32,
    /// The initial state in the kernel's own layout.
    state: Vec<f32>,
}

impl Delta {
    fn new(random: &mut Random) -> Self {
        let dim = 32 * random.pick(&[1, 2, 4, 8]);
        let tokens = random.pick(&[1, 2, 3, 17, 63, 64, 65, 130]);
        let floats = |r: &mut Random, n: usize, size: f32| (0..n).map(|_| size * r.unit()).collect::<Vec<f32>>();
        let mut qkv = floats(random, tokens * 3 * dim, 1.0);
        for row in qkv.chunks_mut(3 * dim) {
            for (vector, length) in row.chunks_mut(dim).zip([1.0 / (dim as f32).sqrt(), 1.0]) {
                let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                vector.iter_mut().for_each(|x| *x *= length / norm);
            }
        }
        Self {
            dim,
            tokens,
            qkv,
            gate: floats(random, tokens * dim, 4.0),
            alpha: floats(random, tokens, 3.0),
            beta: floats(random, tokens, 3.0),
            norm: floats(random, dim, 1.0),
            decay: random.unit() - 1.001,
            bias: random.unit(),
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
                k.run(&DeltaHead {
                    q: row,
                    k: row.add(dim),
                    v: row.add(2 * dim),
                    stride: 3 * dim,
                    gate: self.gate.as_ptr().add(start * dim),
                    gate_stride: dim,
                    alpha: self.alpha.as_ptr().add(start),
                    alpha_stride: 1,
                    beta: self.beta.as_ptr().add(start),
                    beta_stride: 1,
                    decay: self.decay,
                    bias: self.bias,
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
        let mut state: Vec<f64> = self.state.iter().map(|x| f64::from(*x)).collect();
        let mut out = Vec::new();
        for t in 0..self.tokens {
            let part =
                |i: usize| self.qkv[(3 * t + i) * dim..][..dim].iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let (q, k, v) = (part(0), part(1), part(2));
            let softplus = (f64::from(self.alpha[t] + self.bias)).exp().ln_1p();
            let decay = (f64::from(self.decay) * softplus).exp();
            let beta = 1.0 / (1.0 + (-f64::from(self.beta[t])).exp());
            let mut y = vec![0.0; dim];
            for r in 0..dim {
                let at: Vec<usize> = (0..dim).map(|c| self.place(lanes, r, c)).collect();
                at.iter().for_each(|i| state[*i] *= decay);
                let seen: f64 = (0..dim).map(|c| state[at[c]] * k[c]).sum();
                (0..dim).for_each(|c| state[at[c]] += beta * (v[r] - seen) * k[c]);
                y[r] = (0..dim).map(|c| state[at[c]] * q[c]).sum();
            }
            let rms = (y.iter().map(|y| y * y).sum::<f64>() / dim as f64 + 1e-6).sqrt();
            let gate = |c: usize| silu(f64::from(self.gate[t * dim + c]));
            out.extend((0..dim).map(|c| y[c] / rms * f64::from(self.norm[c]) * gate(c)));
        }
        (out, state)
    }
}

fn delta_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 4]) {
    let delta = Delta::new(random);
    let whole = delta.run(k, &[delta.tokens], buffers);
    let want = delta.reference(k.lanes());
    for (got, want, what) in [(&whole.0, &want.0, "result"), (&whole.1, &want.1, "state")] {
        let size = want.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_near(*got, *want, 1e-5 * size, || format!("{} {what} {i}, {} wide", k.name(), delta.dim));
        }
    }
    let cut = delta.run(k, &cuts(random, delta.tokens), buffers);
    assert_same_bits(&cut.0, &whole.0, || format!("{} cut", k.name()));
    assert_same_bits(&cut.1, &whole.1, || format!("{} state", k.name()));
}

#[test]
fn delta_rule_matches_f64_and_is_independent_of_splits() {
    on_every_isa("delta_rule", |k| {
        let (mut random, mut buffers) = (Random::new(12), [(); 4].map(|()| Guarded::new(1 << 18)));
        let cases = share(60);
        (0..cases).for_each(|_| delta_case(k, &mut random, &mut buffers));
        cases
    });
}
