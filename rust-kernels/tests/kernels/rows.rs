//! RMSNorm and SwiGLU: what they compute and where they put it.
use super::sources::activations;
use super::support::{Guarded, ROUNDING, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::norm::Outputs;
use compy::kernels::quant_rows::{QuantRows, row_bytes};
use compy::ops::quantize::QuantizeRow;
use compy::ops::rms_norm::NormRow;
use compy::ops::swiglu::SwigluRow;
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

/// Which outputs an op is asked for.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Float,
    Quant,
    Both,
}

/// A tile of four quantised rows in a buffer.
fn quant_rows(buffer: &mut Guarded, columns: usize) -> QuantRows {
    QuantRows { base: buffer.tail::<u8>(4 * row_bytes(columns)).as_mut_ptr(), columns, tile: 4 }
}

/// Codes of block b of a row, and the bits of its scale and sums.
fn block(quant: &QuantRows, row: usize, b: usize) -> ([i8; BLOCK], [u32; 3]) {
    // SAFETY: `quant_rows` made room for four rows.
    unsafe {
        let meta = |i: usize| quant.meta(0, b, row).add(i * quant.tile).read().to_bits();
        (quant.codes(0, b, row).cast::<[i8; BLOCK]>().read(), [0, 1, 2].map(meta))
    }
}

/// Fails unless blocks first.. of a row are what `quantize_row` makes of `x`, and all other bytes are untouched.
fn assert_quantised(k: Isa, quant: &QuantRows, row: usize, first: usize, x: &[f32], buffer: &mut Guarded) {
    let want = quant_rows(buffer, x.len());
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
    let [from, by] = &mut b.inputs;
    let (from, by) = (from.copy(&x), by.copy(&weight));
    let float = b.float.tail::<f32>(row * stride + n);
    let [quant, want_quant] = &mut b.quant;
    let quant = quant_rows(quant, if wanted == Wanted::Float { BLOCK } else { n });
    let scratch = b.scratch.tail::<f32>(n);
    let outputs = Outputs {
        float: if wanted == Wanted::Quant { std::ptr::null_mut() } else { float.as_mut_ptr() },
        float_stride: stride,
        quant: (wanted != Wanted::Float).then_some(quant),
        fine: None,
    };
    // SAFETY: all buffers have the sizes that the op wants.
    unsafe {
        k.run(NormRow {
            x: from.as_ptr(),
            weight: by.as_ptr(),
            columns: n,
            eps,
            out: &outputs,
            row,
            scratch: scratch.as_mut_ptr(),
        })
    }
    let got = if wanted == Wanted::Quant { &*scratch } else { &float[row * stride..] };
    let squares: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let factor = 1.0 / (squares / n as f64 + f64::from(eps)).sqrt();
    for i in 0..n {
        let want = f64::from(x[i]) * factor * f64::from(weight[i]);
        // A lane adds up at least n / 4 squares at worst; the root halves their error.
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

fn swiglu_case(k: Isa, random: &mut Random, b: &mut Buffers) {
    let wanted = random.pick(&[Wanted::Float, Wanted::Quant, Wanted::Both]);
    let whole = wanted != Wanted::Float;
    let n = if whole { BLOCK * random.between(1, 8) } else { random.between(1, 257) };
    let start = if whole { BLOCK * random.below(3) } else { random.below(70) };
    let (row, columns) = (random.below(4), if whole { start + n + BLOCK * random.below(2) } else { BLOCK });
    let reach = random.pick(&[1.0, 10.0, 100.0, 1e4]);
    let gate: Vec<f32> = (0..n).map(|_| random.unit() * reach).collect();
    let up = activations(n, random);
    let [gates, ups] = &mut b.inputs;
    let (gates, ups) = (gates.tail(n.next_multiple_of(k.lanes())), ups.tail(n.next_multiple_of(k.lanes())));
    gates[..n].copy_from_slice(&gate);
    ups[..n].copy_from_slice(&up);
    let stride = start + n;
    let float = b.float.tail::<f32>((row + 1) * stride);
    let [quant, want_quant] = &mut b.quant;
    let quant = quant_rows(quant, columns);
    let outputs = Outputs {
        float: if wanted == Wanted::Quant { std::ptr::null_mut() } else { float.as_mut_ptr() },
        float_stride: stride,
        quant: whole.then_some(quant),
        fine: None,
    };
    // SAFETY: all buffers have the sizes that the op wants.
    unsafe { k.run(SwigluRow { gate: gates.as_mut_ptr(), up: ups.as_ptr(), n, out: &outputs, row, start }) }
    if wanted != Wanted::Quant {
        assert_same_bits(&float[row * stride + start..], &gates[..n], || format!("{} float output", k.name()));
    }
    for i in 0..n {
        let (g, u) = (f64::from(gate[i]), f64::from(up[i]));
        let want = g / (1.0 + (-g).exp()) * u;
        // e^x is held at e^88 from there on, which leaves g * e^-88; results may be subnormal.
        let limit = 8.0 * ROUNDING * want.abs() + 1e-38 * (g * u).abs() + 2f64.powi(-148);
        assert_near(gates[i], want, limit, || format!("{} silu({g}) * {u}", k.name()));
    }
    if whole {
        assert_quantised(k, &quant, row, start / BLOCK, &gates[..n], want_quant);
    }
}

#[test]
fn swiglu_matches_f64() {
    on_every_isa("swiglu", |k| {
        let (mut random, mut buffers) = (Random::new(2), Buffers::new());
        let cases = share(12_000);
        (0..cases).for_each(|_| swiglu_case(k, &mut random, &mut buffers));
        cases
    });
}
