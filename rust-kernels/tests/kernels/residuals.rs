//! Tests normalized additions to a residual, and products of a gate and a value.
use super::support::{Guarded, ROUNDING, Random, assert_near, on_every_isa, share};
use compy::ops::embed::ScaleRow;
use compy::ops::gate::{GateActivation, GateRow};
use compy::ops::post_norm::PostNormRow;
use compy::simd::Isa;

fn values(n: usize, reach: f32, random: &mut Random) -> Vec<f32> {
    (0..n).map(|_| random.unit() * reach).collect()
}

fn post_norm_case(k: Isa, random: &mut Random, [input, by, sum]: &mut [Guarded; 3]) {
    let (group, groups) = (random.between(1, 200), random.between(1, 4));
    let (columns, eps) = (group * groups, 1e-6f32);
    let (scale, layer_scale) = (random.pick(&[1.0, 0.5, -2.0f32]), random.pick(&[1.0, 0.3f32]));
    let (x, to, weight) = (values(columns, 3.0, random), values(columns, 2.0, random), values(group, 2.0, random));
    let weighed = random.below(4) > 0;
    let (from, by, out) = (input.copy(&x), by.copy(&weight), sum.copy(&to));
    // SAFETY: all pointers have the sizes that the kernel needs.
    unsafe {
        k.run(PostNormRow {
            x: from.as_ptr(),
            weight: if weighed { by.as_ptr() } else { std::ptr::null() },
            columns,
            group,
            eps,
            scale,
            layer_scale,
            to: out.as_mut_ptr(),
        })
    }
    for (g, part) in x.chunks_exact(group).enumerate() {
        let squares: f64 = part.iter().map(|x| f64::from(*x).powi(2)).sum();
        let factor = f64::from(scale) / (squares / group as f64 + f64::from(eps)).sqrt();
        for i in 0..group {
            let y = f64::from(part[i]) * factor * if weighed { f64::from(weight[i]) } else { 1.0 };
            let before = f64::from(to[g * group + i]);
            let limit = ((group / 8 + 8) as f64 * y.abs() + 3.0 * (before.abs() + y.abs())) * ROUNDING;
            let want = (before + y) * f64::from(layer_scale);
            assert_near(out[g * group + i], want, limit, || format!("{} column {i} of group {g}", k.name()));
        }
    }
}

#[test]
fn post_norm_matches_f64() {
    on_every_isa("post_norm", |k| {
        let (mut random, mut buffers) = (Random::new(31), [(); 3].map(|()| Guarded::new(1 << 12)));
        let cases = share(4_000);
        (0..cases).for_each(|_| post_norm_case(k, &mut random, &mut buffers));
        cases
    });
}

const ACTIVATIONS: [GateActivation; 4] =
    [GateActivation::None, GateActivation::Sigmoid, GateActivation::Gelu, GateActivation::Softplus];

fn activated(activation: GateActivation, x: f64) -> f64 {
    match activation {
        GateActivation::None => x,
        GateActivation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        GateActivation::Gelu => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        GateActivation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}

fn gate_case(k: Isa, random: &mut Random, [gates, input, sum]: &mut [Guarded; 3]) {
    let (columns, single, add) = (random.between(1, 300), random.below(3) == 0, random.below(2) == 0);
    let activation = random.pick(&ACTIVATIONS);
    let reach = random.pick(&[1.0, 10.0, 200.0]);
    let gate = values(if single { 1 } else { columns }, reach, random);
    let (x, to) = (values(columns, 3.0, random), values(columns, 3.0, random));
    let (gates, from) = (gates.copy(&gate), input.copy(&x));
    let out = if add { sum.copy(&to) } else { sum.tail::<f32>(columns) };
    // SAFETY: all pointers have the sizes that the kernel needs.
    unsafe {
        k.run(GateRow {
            gate: gates.as_ptr(),
            single,
            activation,
            x: from.as_ptr(),
            columns,
            out: out.as_mut_ptr(),
            add,
        })
    }
    for i in 0..columns {
        let g = f64::from(gate[if single { 0 } else { i }]);
        let before = if add { f64::from(to[i]) } else { 0.0 };
        let (want, x) = (before + activated(activation, g) * f64::from(x[i]), f64::from(x[i]));
        let limit = 16.0 * ROUNDING * ((1.0 + g.abs()) * x.abs() + before.abs());
        assert_near(out[i], want, limit, || format!("{} {activation:?}({g}) * {x}, column {i}", k.name()));
    }
}

#[test]
fn gates_match_f64() {
    on_every_isa("gate", |k| {
        let (mut random, mut buffers) = (Random::new(32), [(); 3].map(|()| Guarded::new(1 << 12)));
        let cases = share(6_000);
        (0..cases).for_each(|_| gate_case(k, &mut random, &mut buffers));
        cases
    });
}

#[test]
fn gates_return_nan_for_nan() {
    on_every_isa("gates of NaN", |k| {
        for activation in ACTIVATIONS {
            for single in [false, true] {
                let (gate, x, mut out) = ([f32::NAN; 17], [1f32; 17], [0f32; 17]);
                let (gate, x) = (gate.as_ptr(), x.as_ptr());
                // SAFETY: all pointers hold 17 floats.
                unsafe { k.run(GateRow { gate, single, activation, x, columns: 17, out: out.as_mut_ptr(), add: true }) }
                assert!(out.iter().all(|y| y.is_nan()), "{} {activation:?}, {single}: {out:?}", k.name());
            }
        }
        8
    });
}

#[test]
fn scale_row_rounds_each_number_once() {
    on_every_isa("scale_row", |k| {
        let (mut random, mut buffer) = (Random::new(33), Guarded::new(1 << 12));
        let cases = share(500);
        for _ in 0..cases {
            let n = random.between(1, 300);
            let x = values(n, 3.0, &mut random);
            let by = 33.94f32;
            let row = buffer.copy(&x);
            // SAFETY: the row holds n floats.
            unsafe { k.run(ScaleRow { x: row.as_mut_ptr(), columns: n, by }) }
            assert_eq!(row, x.iter().map(|x| x * by).collect::<Vec<_>>(), "{}, {n}", k.name());
        }
        cases
    });
}
