//! Tests AltUp's streams, rows that are scaled to the size of another row, and gates that pass only far above their
//! mean.
use super::support::{Guarded, ROUNDING, Random, assert_near, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::norm::Outputs;
use compy::ops::altup::{Router, STREAMS};
use compy::ops::altup_correct::CorrectRow;
use compy::ops::altup_predict::PredictRow;
use compy::ops::match_rms::MatchRow;
use compy::ops::sparse_gate::{Cutoff, SparseGateRow};
use compy::simd::Isa;

const EPS: f32 = 1e-6;

fn values(n: usize, reach: f32, random: &mut Random) -> Vec<f32> {
    (0..n).map(|_| random.unit() * reach).collect()
}

fn floats(columns: usize, at: *mut f32) -> Outputs {
    Outputs { float: at, float_stride: columns, quant: None, fine: None }
}

fn buffers<const N: usize>() -> [Guarded; N] {
    std::array::from_fn(|_| Guarded::new(1 << 14))
}

fn mean_square(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64
}

/// The vectors of a router with `count` coefficients.
struct Weights {
    norm: Vec<f32>,
    router: Vec<f32>,
    coefs: Vec<f32>,
    count: usize,
}

impl Weights {
    fn new(columns: usize, count: usize, random: &mut Random) -> Self {
        let reach = random.pick(&[1.0, 2.0 * (columns as f32).sqrt()]);
        Self {
            norm: values(columns, 2.0, random),
            router: values(STREAMS * columns, reach, random),
            coefs: values(STREAMS * count, 0.5, random),
            count,
        }
    }

    fn copied(&self, [norm, router, coefs]: &mut [Guarded; 3]) -> Router {
        Router {
            norm: norm.copy(&self.norm).as_ptr(),
            router: router.copy(&self.router).as_ptr(),
            coefs: coefs.copy(&self.coefs).as_ptr(),
            columns: self.norm.len(),
            eps: EPS,
        }
    }

    /// Returns the coefficients of x, and the error that f32 may have.
    fn coefficients(&self, x: &[f32]) -> (Vec<f64>, f64) {
        let n = x.len();
        let factor = 1.0 / ((mean_square(x) + f64::from(EPS)).sqrt() * n as f64);
        let terms = |k: usize| {
            (0..n).map(move |i| f64::from(x[i]) * f64::from(self.norm[i]) * f64::from(self.router[k * n + i]))
        };
        let routed: Vec<f64> = (0..STREAMS).map(|k| (terms(k).sum::<f64>() * factor).tanh()).collect();
        let size = (0..STREAMS).map(|k| terms(k).map(f64::abs).sum::<f64>() * factor).fold(0.0, f64::max);
        let coef = |c: usize| (0..STREAMS).map(|k| f64::from(self.coefs[c * STREAMS + k]) * routed[k]).sum();
        // A coefficient is the sum of four products. Each has a factor below 0.5, and a factor with the errors of its
        // sum and of tanh.
        let off = 2.0 * ((n / 4 + 16) as f64 * size + 16.0) * ROUNDING;
        ((0..self.count).map(coef).collect(), off)
    }
}

fn predict_case(k: Isa, random: &mut Random, memory: &mut [Guarded; 8]) {
    let (columns, scale) = (16 * random.between(1, 20), random.pick(&[1.0, 0.5f32]));
    let weights = Weights::new(columns, STREAMS * STREAMS, random);
    let before: [Vec<f32>; STREAMS] = std::array::from_fn(|_| values(columns, 3.0, random));
    let [a, b, c, d, out, router @ ..] = memory;
    let mut rows = [a, b, c, d].map(|memory| memory.tail::<f32>(columns));
    for (row, x) in rows.iter_mut().zip(&before) {
        row.copy_from_slice(x);
    }
    let out = out.tail::<f32>(columns);
    let streams = rows.each_mut().map(|row| row.as_mut_ptr());
    // SAFETY: all pointers have the sizes that the kernel needs.
    unsafe { k.run(PredictRow { streams, router: weights.copied(router), scale, out: out.as_mut_ptr() }) }
    let (coefs, off) = weights.coefficients(&before[0]);
    for i in 0..columns {
        for (to, row) in rows.iter().enumerate() {
            let x = |from: usize| f64::from(before[from][i]);
            let want = x(to) + (0..STREAMS).map(|from| coefs[to * STREAMS + from] * x(from)).sum::<f64>();
            let limit = (0..STREAMS).map(|from| (off + 16.0 * ROUNDING) * x(from).abs()).sum::<f64>();
            assert_near(row[i], want, limit, || format!("{} stream {to}, column {i} of {columns}", k.name()));
        }
        assert_eq!(out[i].to_bits(), (rows[0][i] * scale).to_bits(), "{} copy of column {i}", k.name());
    }
}

#[test]
fn predictions_match_f64() {
    on_every_isa("altup_predict", |k| {
        let (mut random, mut memory) = (Random::new(41), buffers());
        let cases = share(2_000);
        (0..cases).for_each(|_| predict_case(k, &mut random, &mut memory));
        cases
    });
}

fn correct_case(k: Isa, random: &mut Random, memory: &mut [Guarded; 10]) {
    let columns = 16 * random.between(1, 20);
    let weights = Weights::new(columns, STREAMS, random);
    let before: [Vec<f32>; STREAMS] = std::array::from_fn(|_| values(columns, 3.0, random));
    let (x, by) = (values(columns, 3.0, random), values(columns, 2.0, random));
    let [a, b, c, d, made, scale, out, router @ ..] = memory;
    let mut rows = [a, b, c, d].map(|memory| memory.tail::<f32>(columns));
    for (row, x) in rows.iter_mut().zip(&before) {
        row.copy_from_slice(x);
    }
    let out = out.tail::<f32>(columns);
    let streams = rows.each_mut().map(|row| row.as_mut_ptr());
    // SAFETY: all pointers have the sizes that the kernel needs. The scratch memory is unused, because there is a float
    // output.
    unsafe {
        k.run(CorrectRow {
            x: made.copy(&x).as_ptr(),
            streams,
            router: weights.copied(router),
            scale: scale.copy(&by).as_ptr(),
            out: &floats(columns, out.as_mut_ptr()),
            row: 0,
            scratch: std::ptr::null_mut(),
        })
    }
    let (coefs, off) = weights.coefficients(&x);
    for i in 0..columns {
        let wrong = f64::from(x[i]) - f64::from(before[0][i]);
        for (to, row) in rows.iter().enumerate() {
            let want = f64::from(before[to][i]) + (1.0 + coefs[to]) * wrong;
            let limit = (off + 16.0 * ROUNDING) * (f64::from(before[to][i]).abs() + wrong.abs());
            assert_near(row[i], want, limit, || format!("{} stream {to}, column {i} of {columns}", k.name()));
        }
        assert_eq!(out[i].to_bits(), (rows[0][i] * by[i]).to_bits(), "{} copy of column {i}", k.name());
    }
}

#[test]
fn corrections_match_f64() {
    on_every_isa("altup_correct", |k| {
        let (mut random, mut memory) = (Random::new(42), buffers());
        let cases = share(2_000);
        (0..cases).for_each(|_| correct_case(k, &mut random, &mut memory));
        cases
    });
}

fn match_case(k: Isa, random: &mut Random, memory: &mut [Guarded; 5]) {
    let (columns, count, least) = (random.between(1, 300), random.between(1, 3), 0.01f32);
    let reach = |random: &mut Random| random.pick(&[0.0, 1e-3, 1.0, 100.0]);
    let like = values(columns, reach(random), random);
    let before: Vec<Vec<f32>> = (0..count).map(|_| values(columns, reach(random), random)).collect();
    let [of, mean, memory @ ..] = memory;
    let (of, mean, wanted) = (of.copy(&like), mean.tail::<f32>(columns), random.below(2) == 0);
    let rows: Vec<_> = memory.iter_mut().zip(&before).map(|(memory, x)| memory.copy(x)).collect();
    let xs: Vec<_> = rows.iter().map(|row| row.as_ptr().cast_mut()).collect();
    let to = if wanted { mean.as_mut_ptr() } else { std::ptr::null_mut() };
    // SAFETY: all pointers hold `columns` floats.
    unsafe { k.run(MatchRow { like: of.as_ptr(), xs: &xs, least, columns, mean: to }) }
    for i in 0..columns {
        let mut sum = f64::from(like[i]);
        for (x, row) in before.iter().zip(&rows) {
            let factor = mean_square(&like).sqrt() / mean_square(x).sqrt().max(f64::from(least));
            let want = f64::from(x[i]) * factor;
            let limit = (columns / 4 + 16) as f64 * ROUNDING * want.abs() + 1e-37;
            assert_near(row[i], want, limit, || format!("{} column {i} of {columns}", k.name()));
            sum += f64::from(row[i]);
        }
        if wanted {
            let size: f64 = f64::from(like[i]).abs() + rows.iter().map(|row| f64::from(row[i]).abs()).sum::<f64>();
            let want = sum / (1 + count) as f64;
            assert_near(mean[i], want, 4.0 * ROUNDING * size + 1e-37, || format!("{} mean of column {i}", k.name()));
        }
    }
}

#[test]
fn matched_rows_match_f64() {
    on_every_isa("match_rms", |k| {
        let (mut random, mut memory) = (Random::new(43), buffers());
        let cases = share(4_000);
        (0..cases).for_each(|_| match_case(k, &mut random, &mut memory));
        cases
    });
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn sparse_case(k: Isa, random: &mut Random, [gates, ups, out, scratch]: &mut [Guarded; 4]) {
    let (columns, deviations) = (BLOCK * random.between(1, 16), random.pick(&[1.644_853_6, 0.0, -1.0f32]));
    let (centre, reach) = (random.pick(&[0.0, 1.0, -20.0]), random.pick(&[0.1, 3.0]));
    let gate: Vec<f32> = values(columns, reach, random).iter().map(|g| centre + g).collect();
    let x = values(columns, 3.0, random);
    let (from, up) = (gates.copy(&gate), ups.copy(&x));
    // SAFETY: the row holds `columns` floats.
    let cutoff = unsafe { k.run(Cutoff { x: from.as_ptr(), columns, deviations }) };
    let mean = gate.iter().map(|g| f64::from(*g)).sum::<f64>() / columns as f64;
    let spread = (gate.iter().map(|g| (f64::from(*g) - mean).powi(2)).sum::<f64>() / columns as f64).sqrt();
    let limit = (columns / 4 + 16) as f64 * ROUNDING * f64::from(centre.abs() + reach);
    let want = mean + f64::from(deviations) * spread;
    assert_near(cutoff, want, limit, || format!("{} cutoff of {columns} gates", k.name()));

    let start = BLOCK * random.below(columns / BLOCK);
    let n = columns - start;
    let (out, scratch) = (out.tail::<f32>(columns), scratch.tail::<f32>(n));
    // SAFETY: all pointers have the sizes that the kernel needs.
    unsafe {
        k.run(SparseGateRow {
            gate: from[start..].as_ptr(),
            cutoff,
            x: up[start..].as_ptr(),
            n,
            out: &floats(columns, out.as_mut_ptr()),
            row: 0,
            start,
            scratch: scratch.as_mut_ptr(),
        })
    }
    for i in start..columns {
        let above = f64::from((gate[i] - cutoff).max(0.0));
        let (want, x) = (gelu(above) * f64::from(x[i]), f64::from(x[i]));
        let limit = 32.0 * ROUNDING * (1.0 + above) * above * x.abs();
        assert_near(out[i], want, limit, || format!("{} gate {above} of {x}, column {i}", k.name()));
    }
    assert!(out[..start].iter().all(|y| y.is_nan()), "{} wrote before column {start}", k.name());
}

#[test]
fn sparse_gates_match_f64() {
    on_every_isa("sparse_gate", |k| {
        let (mut random, mut memory) = (Random::new(44), buffers());
        let cases = share(4_000);
        (0..cases).for_each(|_| sparse_case(k, &mut random, &mut memory));
        cases
    });
}

#[test]
fn sparse_gates_return_nan_for_nan() {
    on_every_isa("sparse gates of NaN", |k| {
        let (mut gate, x, mut out, mut scratch) = ([1f32; BLOCK], [1f32; BLOCK], [0f32; BLOCK], [0f32; BLOCK]);
        gate[5] = f32::NAN;
        let (gate, x, scratch) = (gate.as_ptr(), x.as_ptr(), scratch.as_mut_ptr());
        let outputs = floats(BLOCK, out.as_mut_ptr());
        // SAFETY: all pointers hold 32 floats.
        unsafe {
            let cutoff = k.run(Cutoff { x: gate, columns: BLOCK, deviations: 1.0 });
            k.run(SparseGateRow { gate, cutoff, x, n: BLOCK, out: &outputs, row: 0, start: 0, scratch });
        }
        assert!(out.iter().all(|y| y.is_nan()), "{}: {out:?}", k.name());
        1
    });
}
