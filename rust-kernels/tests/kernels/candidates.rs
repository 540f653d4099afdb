//! From logits to candidates.
use super::support::{Guarded, ROUNDING, Random, assert_near, on_every_isa, share};
use compy::kernels::dot::Dot;
use compy::ops::candidates::{ApplyMask, LogSumExp, Select};
use compy::simd::Isa;

/// Logits with ties, masked ones, and now and then NaN; `n` of them.
fn logits(n: usize, random: &mut Random) -> Vec<f32> {
    let kind = random.below(5);
    (0..n)
        .map(|i| match kind {
            0 => random.below(5) as f32,
            1 if random.below(4) > 0 => f32::NEG_INFINITY,
            2 if random.below(20) == 0 => f32::NAN,
            3 => i as f32,
            _ => random.unit() * 20.0,
        })
        .collect()
}

fn length(random: &mut Random) -> usize {
    if random.below(20) == 0 { random.between(1000, 9000) } else { random.between(1, 400) }
}

fn select_case(k: Isa, random: &mut Random, buffer: &mut Guarded) {
    let n = length(random);
    let x = logits(n, random);
    let wanted = random.pick(&[1, 2, 10, 64, 256]);
    let mut want: Vec<(f32, i32)> = x.iter().zip(0..).filter(|(x, _)| !x.is_nan()).map(|(x, i)| (*x, i)).collect();
    want.sort_by(|a, b| b.0.partial_cmp(&a.0).expect("no NaN").then(a.1.cmp(&b.1)));
    want.truncate(wanted);
    let mut got = vec![(1.0, 7)];
    // SAFETY: the CPU has the instructions.
    unsafe { k.run(Select { logits: buffer.copy(&x), k: wanted, best: &mut got }) }
    assert_eq!(got, want, "{}, {wanted} of {n}", k.name());
}

#[test]
fn select_is_the_head_of_the_sorted_logits() {
    on_every_isa("select", |k| {
        let (mut random, mut buffer) = (Random::new(7), Guarded::new(1 << 12));
        let cases = share(10_000);
        (0..cases).for_each(|_| select_case(k, &mut random, &mut buffer));
        cases
    });
}

/// Every lane of a chunk may hold NaN without hiding the number beside it.
#[test]
fn select_sees_numbers_beside_nan() {
    on_every_isa("select beside NaN", |k| {
        for (best, nan) in (64..128).flat_map(|best| (64..128).map(move |nan| (best, nan))).filter(|(b, n)| b != n) {
            let mut x = vec![0.0; 192];
            (x[best], x[nan]) = (5.0, f32::NAN);
            x[0] = 1.0;
            x[1] = 2.0;
            let mut got = Vec::new();
            // SAFETY: the CPU has the instructions.
            unsafe { k.run(Select { logits: &x, k: 1, best: &mut got }) }
            assert_eq!(got, [(5.0, best as i32)], "{}, NaN at {nan}", k.name());
        }
        64 * 63
    });
}

fn log_sum_exp_case(k: Isa, random: &mut Random, buffer: &mut Guarded) {
    let n = length(random);
    let mut x = logits(n, random);
    x.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = -3.0);
    x[random.below(n)] = 1.5;
    let top = f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let want = top + x.iter().map(|x| (f64::from(*x) - top).exp()).sum::<f64>().ln();
    // SAFETY: the CPU has the instructions.
    let got = unsafe { k.run(LogSumExp(buffer.copy(&x))) };
    // Terms are off by the rounding of x - top, by e^x's two units and by the sum's roundings: n / 4 at most.
    let limit = ROUNDING * ((n / 4 + 16) as f64 + 2.0 * (top.abs() + want.abs()));
    assert_near(got, want, limit, || format!("{}, {n} logits", k.name()));
}

#[test]
fn log_sum_exp_matches_f64() {
    on_every_isa("log_sum_exp", |k| {
        let (mut random, mut buffer) = (Random::new(8), Guarded::new(1 << 12));
        let cases = share(6_000);
        (0..cases).for_each(|_| log_sum_exp_case(k, &mut random, &mut buffer));
        cases
    });
}

#[test]
fn a_mask_takes_out_the_tokens_whose_bit_is_not_set() {
    on_every_isa("apply_mask", |k| {
        let (mut random, mut buffer) = (Random::new(10), Guarded::new(1 << 12));
        let cases = share(4_000);
        for _ in 0..cases {
            let n = length(&mut random);
            let x: Vec<f32> = (0..n).map(|_| random.unit()).collect();
            let kind = random.below(3);
            let mask: Vec<u32> =
                (0..n.div_ceil(32)).map(|_| [0, u32::MAX, random.below(1 << 32) as u32][kind]).collect();
            let allowed = |i: usize| mask[i / 32] >> (i % 32) & 1 == 1;
            let want: Vec<f32> =
                x.iter().enumerate().map(|(i, x)| if allowed(i) { *x } else { f32::NEG_INFINITY }).collect();
            let got = buffer.copy(&x);
            // SAFETY: the CPU has the instructions.
            unsafe { k.run(ApplyMask { logits: got, mask: &mask }) }
            assert_eq!(got, want, "{}, {n} logits", k.name());
        }
        cases
    });
}

#[test]
fn dot_is_the_sum_of_products() {
    on_every_isa("dot", |k| {
        let (mut random, mut a, mut b) = (Random::new(9), Guarded::new(1 << 12), Guarded::new(1 << 12));
        let cases = share(5000);
        for _ in 0..cases {
            let n = 16 * random.between(1, 256);
            let (x, y): (Vec<f32>, Vec<f32>) = (0..n).map(|_| (random.unit(), random.unit())).unzip();
            let products = || x.iter().zip(&y).map(|(x, y)| f64::from(*x) * f64::from(*y));
            let size: f64 = products().map(f64::abs).sum();
            // SAFETY: the CPU has the instructions, both buffers hold n floats.
            let got = unsafe { k.run(Dot { a: a.copy(&x).as_ptr(), b: b.copy(&y).as_ptr(), n }) };
            assert_near(got, products().sum(), ROUNDING * n as f64 * size, || format!("{}, {n}", k.name()));
        }
        cases
    });
}
