//! Tests the results of RMSNorm, activations and column copies, and their float and quantized outputs.
use super::sources::activations;
use super::support::{Guarded, ROUNDING, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::activations::Activation;
use compy::kernels::norm::Outputs;
use compy::kernels::quant_rows::{QuantRows, row_bytes};
use compy::ops::columns::PutRow;
use compy::ops::glu::ActivationRow;
use compy::ops::quantize::QuantizeRow;
use compy::ops::rms_norm::NormRow;
use compy::simd::Isa;

struct Buffers {
    inputs: [Guarded; 2],
    scratch: Guarded,
    float: Guarded,
    quant: [Guarded; 2],
}

impl Buffers {
    fn new() -> Self {
        let new = || Guarded::new(1 << 14);
        Self { inputs: [new(), new()], scratch: new(), float: new(), quant: [new(), new()] }
    }
}

/// The outputs of an op that a case asks for.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Float,
    Quant,
    Both,
}

/// Returns a tile of four quantized rows in a buffer.
fn quant_rows(k: Isa, buffer: &mut Guarded, columns: usize) -> QuantRows {
    let base = buffer.tail::<u8>(4 * row_bytes(columns)).as_mut_ptr();
    QuantRows { base, columns, tile: 4, paired: k.row_pairs() }
}

/// Returns the codes of block b of a row, and the bits of its scale and sums.
fn block(quant: &QuantRows, row: usize, b: usize) -> ([i8; BLOCK], [u32; 3]) {
    // SAFETY: `quant_rows` made room for four rows.
    unsafe {
        let meta = |i: usize| quant.meta(0, b, row).add(i * quant.tile).read().to_bits();
        (quant.block(0, b, row), [0, 1, 2].map(meta))
    }
}

/// Checks that the row's blocks from `first` on equal those of `quantize_row` for `x`, and that all other bytes are
/// unchanged.
fn assert_quantised(k: Isa, quant: &QuantRows, row: usize, first: usize, x: &[f32], buffer: &mut Guarded) {
    let want = quant_rows(k, buffer, x.len());
    // SAFETY: x is a row of `want`.
    unsafe { k.run(QuantizeRow { x: x.as_ptr(), out: &want, row }) }
    for (r, b) in (0..4).flat_map(|r| (0..quant.columns / BLOCK).map(move |b| (r, b))) {
        let own = r == row && (first..first + x.len() / BLOCK).contains(&b);
        let want = if own { block(&want, row, b - first) } else { ([-1; BLOCK], [u32::MAX; 3]) };
        assert_eq!(block(quant, r, b), want, "{} row {r}, block {b}", k.name());
    }
}

fn rms_norm_case(k: Isa, random: &mut Random, b: &mut Buffers) {
    let wanted = random.pick(&[Wanted::Float, Wanted::Quant, Wanted::Both]);
    let n = if wanted == Wanted::Float { random.between(1, 257) } else { BLOCK * random.between(1, 16) };
    let (stride, eps) = (n + random.below(3), 1e-6f32);
    let row = random.below(4);
    let x = match random.below(8) {
        0 => vec![0.0; n],
        1 => (0..n).map(|_| random.unit() * 1e6).collect(),
        _ => (0..n).map(|_| random.unit()).collect::<Vec<_>>(),
    };
    let weight: Vec<f32> = (0..n).map(|_| random.unit() * 3.0).collect();
    let scale = random.pick(&[1.0, 1.0, 0.125, -3.0f32]);
    let weighed = random.below(4) > 0;
    let [from, by] = &mut b.inputs;
    let (from, by) = (from.copy(&x), by.copy(&weight));
    let float = b.float.tail::<f32>(row * stride + n);
    let [quant, want_quant] = &mut b.quant;
    let quant = quant_rows(k, quant, if wanted == Wanted::Float { BLOCK } else { n });
    let scratch = b.scratch.tail::<f32>(n);
    let outputs = Outputs {
        float: if wanted == Wanted::Quant { std::ptr::null_mut() } else { float.as_mut_ptr() },
        float_stride: stride,
        quant: (wanted != Wanted::Float).then_some(quant),
        fine: None,
    };
    // SAFETY: all buffers have the sizes that the op needs.
    unsafe {
        k.run(NormRow {
            x: from.as_ptr(),
            weight: if weighed { by.as_ptr() } else { std::ptr::null() },
            columns: n,
            eps,
            scale,
            out: &outputs,
            row,
            scratch: scratch.as_mut_ptr(),
        })
    }
    let got = if wanted == Wanted::Quant { &*scratch } else { &float[row * stride..] };
    let squares: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let factor = 1.0 / (squares / n as f64 + f64::from(eps)).sqrt();
    for i in 0..n {
        let by = if weighed { f64::from(weight[i]) } else { 1.0 };
        let want = f64::from(x[i]) * factor * f64::from(scale) * by;
        // At worst, a lane adds n / 4 squares, and the root halves the error of the sum.
        assert_near(got[i], want, (n / 8 + 8) as f64 * ROUNDING * want.abs(), || {
            format!("{} column {i} of {n}", k.name())
        });
    }
    if wanted != Wanted::Float {
        assert_quantised(k, &quant, row, 0, got, want_quant);
    }
}

#[test]
fn rms_norm_matches_f64() {
    on_every_isa("rms_norm", |k| {
        let (mut random, mut buffers) = (Random::new(1), Buffers::new());
        let cases = share(12_000);
        (0..cases).for_each(|_| rms_norm_case(k, &mut random, &mut buffers));
        cases
    });
}

/// Copies columns of a longer row to each requested output.
fn columns_case(k: Isa, random: &mut Random, b: &mut Buffers) {
    let wanted = random.pick(&[Wanted::Float, Wanted::Quant, Wanted::Both]);
    let n = if wanted == Wanted::Float { random.between(1, 257) } else { BLOCK * random.between(1, 16) };
    let (first, row) = (random.below(40), random.below(4));
    let x = activations(first + n, random);
    let float = b.float.tail::<f32>((row + 1) * n);
    let [quant, want_quant] = &mut b.quant;
    let quant = quant_rows(k, quant, if wanted == Wanted::Float { BLOCK } else { n });
    let out = Outputs {
        float: if wanted == Wanted::Quant { std::ptr::null_mut() } else { float.as_mut_ptr() },
        float_stride: n,
        quant: (wanted != Wanted::Float).then_some(quant),
        fine: None,
    };
    // SAFETY: all buffers have the sizes that the op needs.
    unsafe { k.run(PutRow { x: b.inputs[0].copy(&x).as_ptr().add(first), columns: n, out: &out, row }) }
    if wanted != Wanted::Quant {
        assert_same_bits(&float[row * n..], &x[first..], || format!("{} {n} columns", k.name()));
    }
    if wanted != Wanted::Float {
        assert_quantised(k, &quant, row, 0, &x[first..], want_quant);
    }
}

#[test]
fn columns_keep_their_bits() {
    on_every_isa("columns", |k| {
        let (mut random, mut buffers) = (Random::new(15), Buffers::new());
        let cases = share(2000);
        (0..cases).for_each(|_| columns_case(k, &mut random, &mut buffers));
        cases
    });
}

/// Returns erfc(z) for z >= 0: by the Taylor series of erf, and from z = 3 on by the continued fraction.
fn erfc(z: f64) -> f64 {
    if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..100 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - 2.0 / std::f64::consts::PI.sqrt() * sum;
    }
    let fraction = (1..60).rev().fold(z, |below, n| z + f64::from(n) / 2.0 / below);
    (-z * z).exp() / std::f64::consts::PI.sqrt() / fraction
}

/// Returns the activation of x, and the error that f32 may have.
fn activated(activation: Activation, x: f64) -> (f64, f64) {
    // In f32, e^x stays at e^88 for x beyond 88, which leaves an error of x * e^-88. Results may be subnormal.
    let held = 1e-38 * x.abs() + 2f64.powi(-148);
    let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
    match activation {
        Activation::Silu => (x * sigmoid(x), 8.0 * ROUNDING * (x * sigmoid(x)).abs() + held),
        Activation::Gelu => {
            let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            let y = x * sigmoid(2.0 * z);
            // The exponent is about 2 z. It has five roundings, each relative to its size.
            (y, (8.0 + 10.0 * z.abs().min(88.0)) * ROUNDING * y.abs() + held)
        }
        Activation::GeluErf => {
            let tail = x.abs() * erfc(x.abs() / 2f64.sqrt()) / 2.0;
            let y = x.max(0.0) - tail;
            (y, 4.0 * ROUNDING * y.abs() + (32.0 + 4.0 * x * x) * ROUNDING * tail + held)
        }
        Activation::SquaredRelu => (x.max(0.0).powi(2), 2.0 * ROUNDING * x * x),
        Activation::Tanh => (x.tanh(), 8.0 * ROUNDING),
        Activation::Relu => (x.max(0.0), 0.0),
        Activation::SwigluOai => unreachable!("of two numbers"),
    }
}

/// Returns the gated activation of a gate and a value, and the error that f32 may have.
fn gated(activation: Activation, limit: f64, gate: f64, up: f64) -> (f64, f64) {
    if activation == Activation::SwigluOai {
        let (g, by) = (gate.min(7.0), up.clamp(-7.0, 7.0) + 1.0);
        let y = g / (1.0 + (-1.702 * g).exp());
        let off = (10.0 + 3.0 * (1.702 * g).abs().min(88.0)) * ROUNDING;
        return (y * by, off * (y * by).abs() + ROUNDING * y.abs() * up.abs().min(7.0) + 1e-37 * g.abs() + 1e-44);
    }
    let (y, off) = activated(activation, gate);
    let (y, up) = if limit > 0.0 { (y.min(limit), up.clamp(-limit, limit)) } else { (y, up) };
    (y * up, off * up.abs() + 2.0 * ROUNDING * (y * up).abs() + 2f64.powi(-148))
}

fn activation_case(k: Isa, random: &mut Random, b: &mut Buffers) {
    let activation = random.pick(&Activation::ALL);
    let is_gated = activation == Activation::SwigluOai || random.below(2) == 0;
    let bounded = activation == Activation::Silu && is_gated && random.below(2) == 0;
    let limit = if bounded { random.pick(&[0.5, 7.0f32]) } else { 0.0 };
    let wanted = random.pick(&[Wanted::Float, Wanted::Quant, Wanted::Both]);
    let whole = wanted != Wanted::Float;
    let n = if whole { BLOCK * random.between(1, 8) } else { random.between(1, 257) };
    let start = if whole { BLOCK * random.below(3) } else { random.below(70) };
    let (row, columns) = (random.below(4), if whole { start + n + BLOCK * random.below(2) } else { BLOCK });
    let reach = random.pick(&[1e-3, 1.0, 10.0, 100.0, 1e4]);
    let gate: Vec<f32> = (0..n).map(|_| random.unit() * reach).collect();
    let reach = if activation == Activation::SwigluOai || bounded { reach } else { 1.0 };
    let up: Vec<f32> = activations(n, random).iter().map(|u| u * reach).collect();
    let [gates, ups] = &mut b.inputs;
    let (gates, ups) = (gates.tail(n.next_multiple_of(k.lanes())), ups.tail(n.next_multiple_of(k.lanes())));
    gates[..n].copy_from_slice(&gate);
    ups[..n].copy_from_slice(&up);
    let stride = start + n;
    let float = b.float.tail::<f32>((row + 1) * stride);
    let [quant, want_quant] = &mut b.quant;
    let quant = quant_rows(k, quant, columns);
    let outputs = Outputs {
        float: if wanted == Wanted::Quant { std::ptr::null_mut() } else { float.as_mut_ptr() },
        float_stride: stride,
        quant: whole.then_some(quant),
        fine: None,
    };
    let (x, up_row) = (gates.as_mut_ptr(), if is_gated { ups.as_ptr() } else { std::ptr::null() });
    // SAFETY: all buffers have the sizes that the op needs.
    unsafe { k.run(ActivationRow { activation, limit, x, up: up_row, n, out: &outputs, row, start }) }
    if wanted != Wanted::Quant {
        assert_same_bits(&float[row * stride + start..], &gates[..n], || format!("{} float output", k.name()));
    }
    for i in 0..n {
        let (g, u) = (f64::from(gate[i]), f64::from(up[i]));
        let (want, off) = if is_gated { gated(activation, f64::from(limit), g, u) } else { activated(activation, g) };
        assert_near(gates[i], want, off, || format!("{} {activation:?} of {g}, by {u}: {is_gated}", k.name()));
    }
    if whole {
        assert_quantised(k, &quant, row, start / BLOCK, &gates[..n], want_quant);
    }
}

#[test]
fn activations_match_f64() {
    on_every_isa("activations", |k| {
        let (mut random, mut buffers) = (Random::new(2), Buffers::new());
        let cases = share(24_000);
        (0..cases).for_each(|_| activation_case(k, &mut random, &mut buffers));
        cases
    });
}

#[test]
fn activations_return_nan_for_nan() {
    on_every_isa("activations of NaN", |k| {
        for activation in Activation::ALL {
            for (x, up) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
                let ([mut x, up], float) = ([x, up].map(|v| [v; 16]), &mut [0.0; 16]);
                let out = Outputs { float: float.as_mut_ptr(), float_stride: 16, quant: None, fine: None };
                let up = up.as_ptr();
                // SAFETY: all pointers hold 16 floats.
                unsafe {
                    let x = x.as_mut_ptr();
                    k.run(ActivationRow { activation, limit: 0.0, x, up, n: 16, out: &out, row: 0, start: 0 })
                }
                assert!(x.iter().all(|y| y.is_nan()), "{} {activation:?}: {x:?}", k.name());
            }
        }
        14
    });
}
