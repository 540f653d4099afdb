//! Tests Mamba2's kernels: they agree with f64, and results are bit-identical for every split of the tokens.
use super::delta::{cuts, silu};
use super::support::{Guarded, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::kernels::norm::Outputs;
use compy::kernels::quant_rows::{FineRows, QuantRows, row_bytes};
use compy::kernels::softplus::softplus;
use compy::ops::grouped_norm::NormGroup;
use compy::ops::mamba2::{MambaHead, state_len, tile_vectors};
use compy::simd::{Isa, Kernel, Simd};

/// One Mamba2 head: rows of gate, x, B, C and step, and the initial state.
struct Head {
    dim: usize,
    size: usize,
    tokens: usize,
    rows: Vec<f32>,
    decay: f32,
    skip: f32,
    bias: f32,
    /// The initial state: each channel's numbers, then the common factor s.
    state: Vec<f32>,
    factor: f32,
}

impl Head {
    fn new(random: &mut Random) -> Self {
        let (dim, size) = (16 * random.between(1, 6), 16 * random.pick(&[1, 2, 4, 8]));
        let tokens = random.pick(&[1, 2, 3, 4, 5, 17, 63, 64, 65, 130]);
        let floats = |r: &mut Random, n: usize, size: f32| (0..n).map(|_| size * r.unit()).collect::<Vec<f32>>();
        Self {
            dim,
            size,
            tokens,
            rows: floats(random, tokens * (2 * dim + 2 * size + 1), 2.0),
            // The decays include heads that forget nothing, heads that forget everything at each token, and a head that
            // grows.
            decay: random.pick(&[-1e-4, -0.1, -1.0, -8.0, -200.0, 0.01]),
            skip: random.unit(),
            bias: 3.0 * random.unit(),
            state: floats(random, dim * size, 0.5),
            factor: random.pick(&[0.0, 1.0, 1e-9, 3e-18]),
        }
    }

    fn stride(&self) -> usize {
        2 * self.dim + 2 * self.size + 1
    }

    /// Returns the index of number i of channel c in the kernel's state.
    fn place(&self, lanes: usize, c: usize, i: usize) -> usize {
        let (mut first, mut wide) = (0, tile_vectors(self.dim / lanes));
        while c >= (first + wide) * lanes {
            first += wide;
            wide = tile_vectors(self.dim / lanes - first);
        }
        first * lanes * self.size + i * wide * lanes + c - first * lanes
    }

    /// Returns the initial state in the kernel's layout.
    fn packed(&self, lanes: usize) -> Vec<f32> {
        let mut packed = vec![0.0; state_len(self.dim, self.size)];
        for c in 0..self.dim {
            for i in 0..self.size {
                packed[self.place(lanes, c, i)] = self.state[c * self.size + i];
            }
        }
        packed[self.dim * self.size] = self.factor;
        packed
    }

    /// Runs the kernel. Returns the results and the state after the last token.
    fn run(&self, k: Isa, ends: &[usize], b: &mut [Guarded; 2]) -> (Vec<f32>, Vec<f32>) {
        let (dim, size, stride) = (self.dim, self.size, self.stride());
        let [rows, state] = b;
        let (rows, state) = (rows.copy(&self.rows), state.copy(&self.packed(k.lanes())));
        let mut start = 0;
        for end in ends {
            // SAFETY: all rows from `start` to `end` are in the buffers.
            unsafe {
                let row = rows.as_mut_ptr().add(start * stride);
                k.run(&MambaHead {
                    gate: row,
                    x: row.add(dim),
                    write: row.add(2 * dim),
                    read: row.add(2 * dim + size),
                    step: row.add(2 * dim + 2 * size),
                    stride,
                    decay: self.decay,
                    skip: self.skip,
                    bias: self.bias,
                    state: state.as_mut_ptr(),
                    dim,
                    state_size: size,
                    tokens: end - start,
                });
            }
            start = *end;
        }
        (rows.chunks(stride).flat_map(|row| &row[dim..2 * dim]).copied().collect(), state.to_vec())
    }

    /// Returns all results and the final state, computed by the recurrence in f64.
    fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let (dim, size) = (self.dim, self.size);
        let factor = if self.factor == 0.0 { 1.0 } else { f64::from(self.factor) };
        let mut state: Vec<f64> = self.state.iter().map(|x| f64::from(*x) * factor).collect();
        let mut out = Vec::new();
        for row in self.rows.chunks(self.stride()) {
            let at = |i: usize| f64::from(row[i]);
            let step = f64::from(row[2 * dim + 2 * size] + self.bias).exp().ln_1p();
            let decay = (f64::from(self.decay) * step).exp();
            for c in 0..dim {
                let state = &mut state[c * size..][..size];
                let mut y = f64::from(self.skip) * at(dim + c);
                for (i, h) in state.iter_mut().enumerate() {
                    *h = *h * decay + step * at(dim + c) * at(2 * dim + i);
                    y += *h * at(2 * dim + size + i);
                }
                out.push(y * silu(at(c)));
            }
        }
        (out, state)
    }
}

fn head_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 2]) {
    let head = Head::new(random);
    let whole = head.run(k, &[head.tokens], buffers);
    let want = head.reference();
    let factor = whole.1[head.dim * head.size];
    let place = |i: usize| head.place(k.lanes(), i / head.size, i % head.size);
    let state: Vec<f32> = (0..want.1.len()).map(|i| factor * whole.1[place(i)]).collect();
    for (got, want, what) in [(&whole.0, &want.0, "result"), (&state, &want.1, "state")] {
        let size = want.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_near(*got, *want, 2e-5 * size, || format!("{} {what} {i}, decay {}", k.name(), head.decay));
        }
    }
    let cut = head.run(k, &cuts(random, head.tokens), buffers);
    assert_same_bits(&cut.0, &whole.0, || format!("{} cut", k.name()));
    assert_same_bits(&cut.1, &whole.1, || format!("{} state", k.name()));
}

#[test]
fn mamba2_matches_f64_and_is_independent_of_splits() {
    on_every_isa("mamba2", |k| {
        let (mut random, mut buffers) = (Random::new(13), [(); 2].map(|()| Guarded::new(1 << 18)));
        let cases = share(400);
        (0..cases).for_each(|_| head_case(k, &mut random, &mut buffers));
        cases
    });
}

struct Softplus<'a>(&'a mut [f32]);

impl Kernel for Softplus<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        for chunk in self.0.chunks_exact_mut(S::LANES) {
            // SAFETY: a chunk is as long as a vector.
            unsafe { s.store(chunk.as_mut_ptr(), softplus(s, s.load(chunk.as_ptr()))) }
        }
    }
}

#[test]
fn softplus_is_within_a_few_units_in_the_last_place() {
    on_every_isa("softplus", |k| {
        let inputs: Vec<f32> = (-8000..8000).map(|i| i as f32 * 0.01).collect();
        let mut got = inputs.clone();
        // SAFETY: the kernel stays within its slice.
        unsafe { k.run(Softplus(&mut got)) }
        for (x, y) in inputs.iter().zip(&got) {
            let x = f64::from(*x);
            let want = x.max(0.0) + (-x.abs()).exp().ln_1p();
            assert_near(*y, want, 4e-7 * want, || format!("{} softplus({x})", k.name()));
        }
        inputs.len()
    });
}

/// Normalizes columns of one row in groups, and checks each output against the norm of its group in f64.
fn norm_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 4]) {
    let (groups, width) = (random.between(1, 4), 32 * random.between(1, 5));
    let columns = groups * width;
    let floats = |r: &mut Random| (0..columns).map(|_| 3.0 * r.unit()).collect::<Vec<f32>>();
    let (x, weight) = (floats(random), floats(random));
    let [input, weights, out, scratch] = buffers;
    let (input, weights) = (input.copy(&x).as_ptr(), weights.copy(&weight).as_ptr());
    let out = out.tail::<f32>(columns).as_mut_ptr();
    let mut quant = vec![0u64; row_bytes(columns) / 8];
    let mut fine = vec![0u64; 2 * 16 * row_bytes(columns) / 8];
    let quant_rows = QuantRows { base: quant.as_mut_ptr().cast(), columns, tile: 1, paired: false };
    let fine_rows = FineRows::new(fine.as_mut_ptr().cast(), columns, 1, k);
    for float in [out, std::ptr::null_mut()] {
        let outputs = Outputs { float, float_stride: columns, quant: Some(quant_rows), fine: Some(fine_rows) };
        for column in (0..columns).step_by(width) {
            // SAFETY: the buffers hold what the struct says.
            unsafe {
                k.run(NormGroup {
                    x: input.add(column),
                    weight: weights.add(column),
                    width,
                    eps: 1e-5,
                    out: &outputs,
                    row: 0,
                    column,
                    scratch: scratch.tail::<f32>(width).as_mut_ptr(),
                });
            }
        }
    }
    for c in 0..columns {
        let group = &x[c / width * width..][..width];
        let square = group.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
        let want = f64::from(x[c]) / (square + 1e-5).sqrt() * f64::from(weight[c]);
        // SAFETY: the rows have these columns and blocks.
        let (float, code, scale) =
            unsafe { (*out.add(c), *quant_rows.codes(0, c / 32, 0).add(c % 32), *quant_rows.meta(0, c / 32, 0)) };
        assert_near(float, want, 2e-6 * 10.0, || format!("{} column {c} of {columns}", k.name()));
        assert_near(f32::from(code) * scale, want, 0.51 * f64::from(scale), || format!("{} code {c}", k.name()));
    }
}

#[test]
fn grouped_norm_matches_f64() {
    on_every_isa("grouped_norm", |k| {
        let (mut random, mut buffers) = (Random::new(14), [(); 4].map(|()| Guarded::new(1 << 14)));
        let cases = share(400);
        (0..cases).for_each(|_| norm_case(k, &mut random, &mut buffers));
        cases
    });
}
