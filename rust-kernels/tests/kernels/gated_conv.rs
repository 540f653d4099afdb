//! Tests the gated short convolution: it agrees with f64, and results are bit-identical for every split of the tokens.
use super::delta::cuts;
use super::support::{Guarded, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::norm::Outputs;
use compy::kernels::quant_rows::{QuantRows, row_bytes};
use compy::ops::gated_conv::{GatedConvBlock, MOST_TAPS};
use compy::ops::quantize::QuantizeRow;
use compy::simd::Isa;

/// A convolution of channels `column..column + count` in rows with `width` channels.
struct Conv {
    width: usize,
    column: usize,
    count: usize,
    stride: usize,
    tokens: usize,
    taps: usize,
    /// The input rows, each with three parts: gate before, gate behind, input.
    x: Vec<f32>,
    weights: Vec<f32>,
    state: Vec<f32>,
}

impl Conv {
    fn new(random: &mut Random) -> Self {
        let (count, column) = (BLOCK * random.between(1, 2), BLOCK * random.below(3));
        let width = column + count + BLOCK * random.below(2);
        let (stride, tokens) = (3 * width + 16 * random.below(2), random.between(1, 9));
        let taps = random.pick(&[2, 3, 3, 3, 4, 5, MOST_TAPS]);
        let floats = |r: &mut Random, n: usize| (0..n).map(|_| 2.0 * r.unit()).collect();
        Self {
            width,
            column,
            count,
            stride,
            tokens,
            taps,
            x: floats(random, (tokens - 1) * stride + 3 * width),
            weights: floats(random, taps * count),
            state: floats(random, (taps - 1) * count),
        }
    }

    /// Runs the kernel, which writes the results to `out`. Returns the state after the last token.
    fn run(&self, k: Isa, ends: &[usize], out: &Outputs, [x, weights, state, scratch]: &mut [Guarded; 4]) -> Vec<f32> {
        let (x, weights, state) = (x.copy(&self.x), weights.copy(&self.weights), state.copy(&self.state));
        let mut start = 0;
        for end in ends {
            // SAFETY: the buffers hold what the struct says.
            unsafe {
                k.run(GatedConvBlock {
                    x: x.as_ptr().add(start * self.stride + self.column),
                    width: self.width,
                    stride: self.stride,
                    tokens: end - start,
                    weights: weights.as_ptr(),
                    taps: self.taps,
                    state: state.as_mut_ptr(),
                    count: self.count,
                    out,
                    row: start,
                    column: self.column,
                    scratch: scratch.tail::<f32>(self.count).as_mut_ptr(),
                });
            }
            start = *end;
        }
        state.to_vec()
    }

    /// Returns the gated input of a token. Tokens count from the oldest input in the state.
    fn input(&self, i: usize, c: usize) -> f64 {
        let Some(t) = (i + 1).checked_sub(self.taps) else { return f64::from(self.state[i * self.count + c]) };
        let at = |part: usize| f64::from(self.x[t * self.stride + part * self.width + self.column + c]);
        at(0) * at(2)
    }

    fn reference(&self, t: usize, c: usize) -> f64 {
        let behind = f64::from(self.x[t * self.stride + self.width + self.column + c]);
        let weight = |tap: usize| f64::from(self.weights[tap * self.count + c]);
        behind * (0..self.taps).map(|tap| weight(tap) * self.input(t + tap, c)).sum::<f64>()
    }
}

fn case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 4], outs: &mut [Guarded; 3]) {
    let conv = Conv::new(random);
    let &Conv { tokens, taps, count, width, column, .. } = &conv;
    let [float, quant, want] = outs;
    let float = float.tail::<f32>(tokens * width);
    let mut outputs = Outputs { float: float.as_mut_ptr(), float_stride: width, quant: None, fine: None };
    let state = conv.run(k, &[tokens], &outputs, buffers);
    for (t, c) in (0..tokens).flat_map(|t| (0..width).map(move |c| (t, c))) {
        let got = float[t * width + c];
        match c.checked_sub(column).filter(|c| *c < count) {
            Some(own) => {
                assert_near(got, conv.reference(t, own), 1e-5, || format!("{} token {t}, channel {c}", k.name()))
            }
            None => assert!(got.is_nan(), "{} token {t}, channel {c} is another's", k.name()),
        }
    }
    for (i, got) in state.iter().enumerate() {
        let want = conv.input(tokens + i / count, i % count);
        assert_near(*got, want, 1e-6, || format!("{} state {i} of {taps} taps", k.name()));
    }
    let whole = float.to_vec();
    float.fill(f32::NAN);
    let cut = conv.run(k, &cuts(random, tokens), &outputs, buffers);
    assert_same_bits(&cut, &state, || format!("{} cut, state", k.name()));
    for t in 0..tokens {
        let part = t * width + column..t * width + column + count;
        assert_same_bits(&float[part.clone()], &whole[part], || format!("{} cut, token {t}", k.name()));
    }
    let rows = |buffer: &mut Guarded, columns| QuantRows {
        base: buffer.tail::<u8>(16 * row_bytes(columns)).as_mut_ptr(),
        columns,
        tile: 16,
        paired: k.row_pairs(),
    };
    let (quant, want) = (rows(quant, width), rows(want, count));
    (outputs.float, outputs.quant) = (std::ptr::null_mut(), Some(quant));
    conv.run(k, &[tokens], &outputs, buffers);
    for (t, b) in (0..tokens).flat_map(|t| (0..count / BLOCK).map(move |b| (t, b))) {
        // SAFETY: there are at most nine tokens, and the columns are those of the buffers.
        unsafe {
            k.run(QuantizeRow { x: whole.as_ptr().add(t * width + column), out: &want, row: t });
            let codes = |q: &QuantRows, b| q.block(0, b, t);
            let scale = |q: &QuantRows, b| q.meta(0, b, t).read().to_bits();
            let own = column / BLOCK + b;
            assert_eq!((codes(&quant, own), scale(&quant, own)), (codes(&want, b), scale(&want, b)), "{}", k.name());
        }
    }
}

#[test]
fn gated_conv_matches_f64_and_is_independent_of_splits() {
    on_every_isa("gated_conv", |k| {
        let mut random = Random::new(28);
        let (mut buffers, mut outs) =
            ([(); 4].map(|()| Guarded::new(1 << 14)), [(); 3].map(|()| Guarded::new(1 << 14)));
        let cases = share(2_000);
        (0..cases).for_each(|_| case(k, &mut random, &mut buffers, &mut outs));
        cases
    });
}
