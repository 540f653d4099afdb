//! RoPE and per-head norms.
use super::support::{Guarded, ROUNDING, Random, assert_near, on_every_isa, share};
use compy::ops::rope_append::{NormAndRotate, NormHead};
use compy::ops::{rope_append::RopeShape, rope_table::angles};
use compy::program::RopeAngles;
use compy::simd::Isa;

fn rotate_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 3]) {
    let head_dim = 2 * random.between(1, 128);
    let rotated = if random.below(2) == 0 { head_dim } else { 2 * random.between(0, head_dim / 2) };
    let (interleaved, norm_last) = (random.below(2) == 0, random.below(3) == 0);
    let unweighted = random.below(3) == 0;
    let shape = RopeShape { head_dim, rotated, interleaved, eps: 1e-6, norm_last, unweighted };
    let half = rotated / 2;
    let frequencies: Vec<f64> = (0..half).map(|i| 10_000f64.powf(-(i as f64) / half as f64)).collect();
    let magnitude = random.pick(&[1.0, 1.19, 0.7]);
    let by_position = RopeAngles { axes: vec![0; frequencies.len()], frequencies: frequencies.clone(), magnitude };
    let most = random.pick(&[2, 100, 200_000]);
    let position = random.below(most);
    let x: Vec<f32> = (0..head_dim).map(|_| random.unit() * 4.0).collect();
    let weighted = random.below(2) == 0;
    let weight: Vec<f32> = (0..head_dim).map(|_| if weighted { random.unit() } else { 1.0 }).collect();
    let normed = weighted || unweighted;

    let [head, by, table] = buffers;
    let (head, by, table) = (head.copy(&x), by.copy(&weight), table.tail::<f32>(rotated));
    // SAFETY: all have the sizes that the ops need.
    unsafe {
        angles([position as u32; 3], &by_position, table.as_mut_ptr());
        let by = if weighted { by.as_ptr() } else { std::ptr::null() };
        k.run(NormAndRotate { x: head.as_mut_ptr(), weight: by, table: table.as_ptr(), shape: &shape });
    }

    let mut want: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let norm = |want: &mut [f64], size: &mut [f64]| {
        let mean = want.iter().map(|x| x * x).sum::<f64>() / head_dim as f64;
        for ((x, size), w) in want.iter_mut().zip(size).zip(&weight) {
            let factor = f64::from(*w) / (mean + f64::from(shape.eps)).sqrt();
            (*x, *size) = (*x * factor, *size * factor.abs());
        }
    };
    let mut size: Vec<f64> = want.iter().map(|x| x.abs()).collect();
    if normed && !norm_last {
        norm(&mut want, &mut size);
    }
    for i in 0..half {
        let (a, b) = if shape.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
        let (sin, cos) = (position as f64 * frequencies[i]).sin_cos();
        let (sin, cos) = (magnitude * sin, magnitude * cos);
        (want[a], want[b]) = (want[a] * cos - want[b] * sin, want[a] * sin + want[b] * cos);
        (size[a], size[b]) = (size[a] + size[b], size[a] + size[b]);
    }
    if normed && norm_last {
        norm(&mut want, &mut size);
    }
    for i in 0..head_dim {
        let limit = ((if normed { head_dim / 8 + 8 } else { 0 }) + 4) as f64 * ROUNDING * size[i];
        assert_near(head[i], want[i], limit, || format!("{} dimension {i} of {head_dim}, {rotated} rotated", k.name()));
    }
}

#[test]
fn norm_and_rotate_matches_f64() {
    on_every_isa("norm_and_rotate", |k| {
        let (mut random, mut buffers) = (Random::new(3), [(); 3].map(|()| Guarded::new(1 << 12)));
        let cases = share(10_000);
        (0..cases).for_each(|_| rotate_case(k, &mut random, &mut buffers));
        cases
    });
}

#[test]
fn norm_head_matches_f64() {
    on_every_isa("norm_head", |k| {
        let (mut random, mut buffers) = (Random::new(4), [(); 2].map(|()| Guarded::new(1 << 12)));
        let cases = share(2_000);
        for _ in 0..cases {
            let n = random.between(1, 512);
            let x: Vec<f32> = (0..n).map(|_| random.unit() * 4.0).collect();
            let [from, to] = &mut buffers;
            let (from, out) = (from.copy(&x), to.tail::<f32>(n));
            // SAFETY: both hold n floats.
            unsafe { k.run(NormHead { x: from.as_ptr(), n, eps: 1e-6, out: out.as_mut_ptr() }) }
            let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
            for i in 0..n {
                let want = f64::from(x[i]) / (squares / n as f64 + f64::from(1e-6f32)).sqrt();
                assert_near(out[i], want, (n / 8 + 8) as f64 * ROUNDING * want.abs(), || {
                    format!("{} dimension {i} of {n}", k.name())
                });
            }
        }
        cases
    });
}
