//! Tests the ops for whole texts, LayerNorm and bidirectional attention: they agree with f64, and a row's result is
//! bit-identical whatever else is in its tile.
use super::support::{Guarded, ROUNDING, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::kernels::float_gemm::FloatRows;
use compy::kernels::norm::Outputs;
use compy::ops::layer_norm::LayerNormRow;
use compy::ops::text_attention::{CHUNK, ROWS, TextTile, attend, scratch_len};
use compy::simd::Isa;

fn layer_norm_case(k: Isa, random: &mut Random, [from, by, added, float, scratch]: &mut [Guarded; 5]) {
    let (groups, eps) = (random.pick(&[1, 1, 3]), 1e-12f32);
    let width = random.between(2, 400 / groups);
    let n = groups * width;
    let (center, spread) = (random.unit() * random.pick(&[0.0, 1.0, 30.0]), random.pick(&[0.01, 1.0, 50.0]));
    let x: Vec<f32> = (0..n).map(|_| center + spread * random.unit()).collect();
    let weight: Vec<f32> = (0..n).map(|_| random.unit() * 3.0).collect();
    let bias: Option<Vec<f32>> = (random.below(2) == 0).then(|| (0..n).map(|_| random.unit()).collect());
    let (from, by) = (from.copy(&x), by.copy(&weight));
    let added = bias.as_ref().map_or(std::ptr::null(), |bias| added.copy(bias).as_ptr());
    let (float, in_scratch) = (float.tail::<f32>(n), random.below(2) == 0);
    let scratch = scratch.tail::<f32>(n);
    let outputs = Outputs { float: float.as_mut_ptr(), float_stride: n, quant: None, fine: None };
    let args = LayerNormRow {
        x: from.as_ptr(),
        weight: by.as_ptr(),
        bias: added,
        columns: n,
        groups,
        eps,
        out: &Outputs { float: if in_scratch { std::ptr::null_mut() } else { outputs.float }, ..outputs },
        row: 0,
        scratch: scratch.as_mut_ptr(),
    };
    // SAFETY: all pointers hold n floats.
    unsafe { k.run(args) }
    let got = if in_scratch { &*scratch } else { &*float };
    for (group, x) in x.chunks(width).enumerate() {
        let of = |f: &dyn Fn(f64) -> f64| x.iter().map(|x| f(f64::from(*x))).sum::<f64>() / width as f64;
        let mean = of(&|x| x);
        let variance = of(&|x| (x - mean) * (x - mean));
        let factor = 1.0 / (variance + f64::from(eps)).sqrt();
        // The mean has the roundings of its sum as an error, and subtracting it cancels digits.
        let doubt = (width / 4 + 4) as f64 * ROUNDING * of(&f64::abs);
        for (i, x) in x.iter().enumerate() {
            let column = group * width + i;
            let (weight, bias) = (f64::from(weight[column]), bias.as_ref().map_or(0.0, |bias| f64::from(bias[column])));
            let off = (f64::from(*x) - mean) * factor;
            let limit = weight.abs()
                * ((width / 4 + 12) as f64 * ROUNDING * off.abs() + 4.0 * doubt * factor * (1.0 + off.abs()))
                + ROUNDING * bias.abs();
            assert_near(got[column], off * weight + bias, limit, || format!("{} column {column} of {n}", k.name()));
        }
    }
}

#[test]
fn layer_norm_matches_f64() {
    on_every_isa("layer_norm", |k| {
        let (mut random, mut buffers) = (Random::new(31), [(); 5].map(|()| Guarded::new(1 << 12)));
        let cases = share(4000);
        (0..cases).for_each(|_| layer_norm_case(k, &mut random, &mut buffers));
        cases
    });
}

/// A text's queries, keys and values, as rows of their buffers.
struct Text {
    tokens: usize,
    group: usize,
    dim: usize,
    reach: usize,
    /// Whether attention's products use 16-bit integers instead of floats.
    rounds: bool,
    scale: f32,
    /// Number of floats between two heads of a query.
    step: usize,
    slopes: Vec<f32>,
    /// Number of floats between two rows of queries, and between two rows of keys and values.
    strides: [usize; 2],
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Text {
    fn new(random: &mut Random, rounds: bool) -> Self {
        let (dim, group) = (random.pick(&[16, 24, 32, 48, 64, 72, 80, 112, 128, 256]), random.pick(&[1, 1, 2, 3]));
        let tokens = random.pick(&[1, 2, 5, 16, 63, 64, 65, 130, 200, 300]);
        let reach = if random.below(2) == 0 { usize::MAX } else { random.between(0, 70) };
        let step = dim + random.pick(&[0, 0, 2 * dim]);
        let width = (group - 1) * step + dim;
        let (size, strides) = (random.pick(&[0.1, 1.0, 4.0]), [width + random.below(3), dim + random.below(3)]);
        let sloped = random.below(2) * group;
        let slopes = (0..sloped).map(|_| random.pick(&[0.0, 0.004, 0.06, 0.5, 1.0])).collect();
        let mut rows = |stride: usize, width: usize, size: f32| -> Vec<f32> {
            (0..(tokens - 1) * stride + width).map(|_| random.unit() * size).collect()
        };
        let (q, k, v) = (rows(strides[0], width, size), rows(strides[1], dim, 2.0), rows(strides[1], dim, 1.0));
        Self { tokens, group, dim, reach, rounds, scale: 1.0 / (dim as f32).sqrt(), step, slopes, strides, q, k, v }
    }

    /// Runs the kernel for some of the tokens. Returns their rows, one after the other.
    fn run(&self, isa: Isa, first: usize, count: usize, [q, k, v, out, scratch]: &mut [Guarded; 5]) -> Vec<f32> {
        let (width, [stride, kv_stride]) = (self.group * self.dim, self.strides);
        let rows = |at: *mut f32, stride| FloatRows { base: at, stride };
        let written = out.tail::<f32>(self.tokens * width);
        let tile = TextTile {
            q: rows(q.copy(&self.q).as_mut_ptr(), stride),
            out: rows(written.as_mut_ptr(), width),
            keys: rows(k.copy(&self.k).as_mut_ptr(), kv_stride),
            values: rows(v.copy(&self.v).as_mut_ptr(), kv_stride),
            tokens: self.tokens,
            first,
            count,
            group: self.group,
            head_dim: self.dim,
            scale: self.scale,
            reach: self.reach,
            rounds: self.rounds,
            step: self.step,
            slopes: &self.slopes,
            scratch: scratch.tail::<f32>(scratch_len(self.dim)).as_mut_ptr(),
        };
        // SAFETY: all rows exist, and the scratch memory has the required size.
        unsafe { attend(isa, &tile) }
        let (before, rest) = written.split_at(first * width);
        let (mine, after) = rest.split_at(count * width);
        assert!(before.iter().chain(after).all(|x| x.is_nan()), "rows of other tiles are left alone");
        mine.to_vec()
    }

    fn key(&self, position: usize) -> &[f32] {
        &self.k[position * self.strides[1]..][..self.dim]
    }

    fn value(&self, position: usize) -> &[f32] {
        &self.v[position * self.strides[1]..][..self.dim]
    }

    /// Returns an upper bound of the rounding error of a query's product with a key. It is half a step of each factor
    /// for each number of the other factor.
    fn rounded_score(&self, q: &[f32], k: &[f32]) -> f64 {
        if !self.rounds {
            return 0.0;
        }
        let step = |x: &[f32]| {
            let norm = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            (x.chunks(32).map(norm).fold(0.0, f64::max) / 46_000.0).max(largest(x) / 32_766.0)
        };
        let sum = |x: &[f32]| x.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        0.51 * (step(q) * sum(k) + step(k) * sum(q) + step(q) * step(k) * q.len() as f64)
    }

    /// Returns for each dimension an upper bound of the error that rounded weights and values cause. It is half a step
    /// of each position's value and of its weight. A chunk's weights share a scale, which is from the largest weight
    /// and the largest sum of 16 weights.
    fn rounded_values(&self, seen: &[usize], weights: &[f64]) -> Vec<f64> {
        let mut doubt = vec![0.0; self.dim];
        if !self.rounds {
            return doubt;
        }
        let mut all = vec![0.0; self.tokens];
        seen.iter().zip(weights).for_each(|(p, w)| all[*p] = *w);
        for (c, weights) in all.chunks(CHUNK).enumerate() {
            let positions = c * CHUNK..c * CHUNK + weights.len();
            let steps: Vec<f64> = positions.clone().map(|p| largest(self.value(p)) / 32_766.0).collect();
            let scaled: Vec<f64> = weights.iter().zip(&steps).map(|(w, step)| w * step).collect();
            let top = scaled.iter().copied().fold(0.0, f64::max);
            let sum = scaled.chunks(16).map(|part| part.iter().sum()).fold(0.0, f64::max);
            let (step, values) = ((top / 32_766.0).max(sum / 65_500.0), scaled.iter().sum::<f64>());
            for (d, doubt) in doubt.iter_mut().enumerate() {
                let code = |(p, step): (usize, &f64)| f64::from(self.value(p)[d].abs()) / step.max(1e-30) + 0.51;
                *doubt += 0.51 * (step * positions.clone().zip(&steps).map(code).sum::<f64>() + values);
            }
        }
        doubt
    }

    /// Checks one head of a row against f64, within the errors of f32 and of rounding to codes.
    fn check(&self, row: usize, head: usize, got: &[f32], name: &dyn Fn() -> String) {
        let q = &self.q[row * self.strides[0] + head * self.step..][..self.dim];
        let seen: Vec<usize> = (0..self.tokens).filter(|p| p.abs_diff(row) <= self.reach).collect();
        let mut doubt = 0.0f64;
        let scores: Vec<f64> = seen
            .iter()
            .map(|p| {
                let term = |d: usize| f64::from(q[d]) * f64::from(self.k[p * self.strides[1] + d]);
                let (sum, size) = (0..self.dim).map(term).fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
                let rounded = ROUNDING * (self.dim + 8) as f64 * size + self.rounded_score(q, self.key(*p));
                let lost = self.slopes.get(head).map_or(0.0, |slope| f64::from(*slope) * p.abs_diff(row) as f64);
                let score = sum * f64::from(self.scale) - lost;
                doubt = doubt.max(f64::from(self.scale) * rounded + ROUNDING * (score.abs() + lost));
                score
            })
            .collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let relative = 2.0 * doubt + ROUNDING * (2 * self.tokens + 40) as f64;
        let rounded = self.rounded_values(&seen, &weights);
        for d in 0..self.dim {
            let terms = seen.iter().zip(&weights).map(|(p, w)| w / total * f64::from(self.v[p * self.strides[1] + d]));
            let (want, size) = terms.fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
            let limit = relative * size + rounded[d] / total;
            assert_near(got[d], want, limit, || format!("{} row {row}, head {head}", name()));
        }
    }
}

fn largest(x: &[f32]) -> f64 {
    x.iter().fold(0.0, |top: f64, x| top.max(f64::from(x.abs())))
}

#[test]
fn text_attention_matches_f64_and_is_independent_of_the_tile() {
    on_every_isa("text_attention", |k| {
        let (mut random, mut buffers) = (Random::new(32), [(); 5].map(|()| Guarded::new(1 << 21)));
        let mut cases = 0;
        for _ in 0..share(800) {
            let rounds = random.below(2) == 0;
            let text = Text::new(&mut random, rounds);
            let (tokens, dim, width) = (text.tokens, text.dim, text.group * text.dim);
            let name = || {
                let how = if rounds { "in 16 bits" } else { "in floats" };
                format!("{} {how}, {tokens} tokens of {} x {dim}, reach {}", k.name(), text.group, text.reach)
            };
            let most = ROWS / text.group;
            for first in (0..tokens).step_by(most) {
                let count = most.min(tokens - first);
                let got = text.run(k, first, count, &mut buffers);
                for row in (first..first + count).step_by(7) {
                    for head in 0..text.group {
                        text.check(row, head, &got[(row - first) * width + head * dim..], &name);
                    }
                }
                cases += 1;
                let row = random.below(count);
                let alone = text.run(k, first + row, 1, &mut buffers);
                assert_same_bits(&alone, &got[row * width..][..width], name);
                cases += 1;
            }
        }
        cases
    });
}

#[test]
fn text_attention_spreads_nan_and_infinity_to_the_rows_that_see_it() {
    on_every_isa("text_attention, not a number", |k| {
        let (mut random, mut buffers) = (Random::new(33), [(); 5].map(|()| Guarded::new(1 << 21)));
        let cases = share(160);
        for case in 0..cases {
            let mut text = Text::new(&mut random, case % 2 == 0);
            let (row, d) = (random.below(text.tokens), random.below(text.dim));
            let strange = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][case / 2 % 3];
            match case / 6 % 2 {
                0 => text.q[row * text.strides[0] + d] = strange,
                _ => text.v[row * text.strides[1] + d] = strange,
            }
            let got = text.run(k, row, 1, &mut buffers);
            assert!(!got[d].is_finite(), "{} {} {case}", k.name(), text.tokens);
        }
        cases
    });
}
