//! Tests the steps from logits to candidates: survey, selection, draw, masks and the model's transform.
use super::support::{Guarded, ROUNDING, Random, assert_near, on_every_isa, share};
use compy::kernels::dot::Dot;
use compy::ops::candidates::{
    ApplyMask, Draw, LogitTransform, Penalties, Row, SUMMED, Sums, Survey, TransformLogits, Weigh, adjust, select,
};
use compy::simd::Isa;
use std::collections::BTreeSet;

/// Returns `n` logits with ties, masked logits, and sometimes NaN.
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

/// Surveys logits in guarded memory. `maxima` receives the maxima of their chunks.
fn surveyed<'a>(k: Isa, logits: &'a mut [f32], maxima: &'a mut Vec<f32>) -> (Row<'a>, Sums) {
    maxima.resize(Row::maxima(logits.len()), 0.0);
    let mut row = Row { logits, maxima };
    let form = LogitTransform { scale: 1.0, softcap: 0.0 };
    // SAFETY: the CPU has the instructions, and the kernel's operands are valid references.
    let sums = unsafe { k.run(Survey { row: &mut row, form }) };
    (row, sums)
}

/// Checks the maximum of every chunk against the current logits.
fn assert_maxima(k: Isa, row: &Row) {
    let want: Vec<f32> =
        row.logits.chunks(64).map(|chunk| chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max)).collect();
    assert_eq!(row.maxima, want, "{}", k.name());
}

fn select_case(k: Isa, random: &mut Random, buffer: &mut Guarded) {
    let n = length(random);
    let x = logits(n, random);
    let wanted = random.pick(&[1, 2, 10, 64, 256]);
    let mut want: Vec<(f32, i32)> = x.iter().zip(0..).filter(|(x, _)| !x.is_nan()).map(|(x, i)| (*x, i)).collect();
    want.sort_by(|a, b| b.0.partial_cmp(&a.0).expect("no NaN").then(a.1.cmp(&b.1)));
    want.truncate(wanted);
    let mut got = vec![(1.0, 7)];
    let mut maxima = Vec::new();
    let (row, _) = surveyed(k, buffer.copy(&x), &mut maxima);
    assert_maxima(k, &row);
    select(&row, wanted, &mut got);
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

/// A NaN in any lane of a chunk must not hide the number beside it.
#[test]
fn select_sees_numbers_beside_nan() {
    on_every_isa("select beside NaN", |k| {
        for (best, nan) in (64..128).flat_map(|best| (64..128).map(move |nan| (best, nan))).filter(|(b, n)| b != n) {
            let mut x = vec![0.0; 192];
            (x[best], x[nan]) = (5.0, f32::NAN);
            x[0] = 1.0;
            x[1] = 2.0;
            let mut got = Vec::new();
            let mut maxima = Vec::new();
            select(&surveyed(k, &mut x, &mut maxima).0, 1, &mut got);
            assert_eq!(got, [(5.0, best as i32)], "{}, NaN at {nan}", k.name());
        }
        64 * 63
    });
}

fn spread_case(k: Isa, random: &mut Random, buffer: &mut Guarded) {
    let n = length(random);
    let mut x = logits(n, random);
    x.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = -3.0);
    x[random.below(n)] = 1.5;
    let top = f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let want = top + x.iter().map(|x| (f64::from(*x) - top).exp()).sum::<f64>().ln();
    let mut maxima = Vec::new();
    let (_, sums) = surveyed(k, buffer.copy(&x), &mut maxima);
    // `replace` must have the same effect as if the logit had been there from the start.
    let at = random.below(n);
    let now = x[at];
    x[at] = now - 3.0;
    let (_, mut replaced) = surveyed(k, buffer.copy(&x), &mut maxima);
    replaced.replace(x[at], now);
    x[at] = now;
    // A term has the error of rounding x - top and of two units of e^x. The sum adds at most n / 4 roundings.
    let limit = ROUNDING * ((n / 4 + 16) as f64 + 2.0 * (top.abs() + want.abs()));
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
    let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n as f64;
    // The squares of the distances from the top are each rounded and added at most n / 4 times.
    let square = x.iter().map(|x| (f64::from(*x) - top).powi(2)).sum::<f64>() / n as f64;
    let square_limit = 2.0 * ROUNDING * (n / 4 + 16) as f64 * square;
    for got in [sums, replaced].map(|sums| sums.spread()) {
        assert_near(got.log_sum_exp, want, limit, || format!("{}, {n} logits", k.name()));
        if x.iter().all(|x| x.is_finite()) {
            assert_near(got.deviation * got.deviation, variance, square_limit, || {
                format!("{}, deviation of {n} logits", k.name())
            });
        }
    }
}

/// Each draw must be the token that the exact sums give, or a token beside it if the mark is near an edge.
fn draw_case(k: Isa, random: &mut Random, buffer: &mut Guarded) {
    let n = length(random);
    let x = logits(n, random);
    let temperature = random.pick(&[0.3f32, 1.0, 2.0]);
    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = x
        .iter()
        .map(|x| if x.is_nan() { 0.0 } else { (f64::from(*x - top) / f64::from(temperature)).exp() })
        .map(|w| if w.is_nan() { 0.0 } else { w })
        .collect();
    let total = weights.iter().sum::<f64>();
    for _ in 0..8 {
        let mark = random.below(1 << 32) as u32;
        let mut maxima = Vec::new();
        let (row, _) = surveyed(k, buffer.copy(&x), &mut maxima);
        let parts = row.logits.chunks_mut(SUMMED).zip(row.maxima.chunks_mut(SUMMED / 64));
        // SAFETY: the CPU has the instructions, here and below.
        let weigh = |part: Row| unsafe { k.run(Weigh { part: &part, top, temperature }) };
        let sums: Vec<f64> = parts.map(|(logits, maxima)| weigh(Row { logits, maxima })).collect();
        let got = unsafe { k.run(Draw { row: &row, top, temperature, mark, sums: &sums }) };
        let Some(token) = got else {
            assert_eq!(top, f32::NEG_INFINITY, "{}: nothing drawn", k.name());
            continue;
        };
        assert!(x[token] > f32::NEG_INFINITY, "{}: drew {token}, whose logit is {}", k.name(), x[token]);
        let wanted = (f64::from(mark) + 0.5) / 2f64.powi(32) * total;
        let before: f64 = weights[..token].iter().sum();
        let slack = ROUNDING * 300.0 * total;
        let near = wanted > before - slack && wanted < before + weights[token] + slack;
        assert!(near, "{}: drew {token} at {wanted} of {total}, its share begins at {before}", k.name());
    }
}

#[test]
fn draw_follows_the_exact_sums() {
    on_every_isa("draw", |k| {
        let (mut random, mut buffer) = (Random::new(18), Guarded::new(1 << 14));
        let cases = share(1500);
        (0..cases).for_each(|_| draw_case(k, &mut random, &mut buffer));
        cases
    });
}

#[test]
fn spread_matches_f64() {
    on_every_isa("spread", |k| {
        let (mut random, mut buffer) = (Random::new(8), Guarded::new(1 << 12));
        let cases = share(6_000);
        (0..cases).for_each(|_| spread_case(k, &mut random, &mut buffer));
        cases
    });
}

#[test]
fn apply_mask_removes_tokens_without_a_bit() {
    on_every_isa("apply_mask", |k| {
        let (mut random, mut buffer) = (Random::new(10), Guarded::new(1 << 12));
        let cases = share(4_000);
        for _ in 0..cases {
            let n = length(&mut random);
            let x: Vec<f32> = (0..n).map(|_| random.unit()).collect();
            let kinds = random.between(1, 3);
            let word = |random: &mut Random| [0, u32::MAX, random.below(1 << 32) as u32][random.below(kinds)];
            let mask: Vec<u32> = (0..n.div_ceil(32)).map(|_| word(&mut random)).collect();
            let allowed = |i: usize| mask[i / 32] >> (i % 32) & 1 == 1;
            let want: Vec<f32> =
                x.iter().enumerate().map(|(i, x)| if allowed(i) { *x } else { f32::NEG_INFINITY }).collect();
            let mut maxima = Vec::new();
            let (mut row, _) = surveyed(k, buffer.copy(&x), &mut maxima);
            // SAFETY: the CPU has the instructions.
            unsafe { k.run(ApplyMask { row: &mut row, mask: &mask }) }
            assert_eq!(row.logits, want, "{}, {n} logits", k.name());
            assert_maxima(k, &row);
        }
        cases
    });
}

#[test]
fn adjust_changes_logits_and_the_maxima_of_their_chunks() {
    on_every_isa("adjust", |k| {
        let (mut random, mut buffer) = (Random::new(11), Guarded::new(1 << 12));
        let cases = share(2_000);
        for _ in 0..cases {
            let n = length(&mut random);
            let mut x = logits(n, &mut random);
            let mut some = |most: usize| -> Vec<i32> {
                (0..random.below(most)).map(|_| random.below(n) as i32).collect::<BTreeSet<_>>().into_iter().collect()
            };
            let (tokens, biased) = (some(40), some(10));
            let counts: Vec<i32> = tokens.iter().map(|_| random.below(3) as i32).collect();
            let values: Vec<f32> = biased.iter().map(|_| random.unit() * 50.0).collect();
            let mut maxima = Vec::new();
            let (mut row, _) = surveyed(k, buffer.copy(&x), &mut maxima);
            let penalties =
                Penalties { repetition: 1.5, presence: 0.25, frequency: 0.5, tokens: &tokens, counts: &counts };
            let mut raw = Vec::new();
            adjust(&mut row, &penalties, (&biased, &values), &mut raw);
            let touched: BTreeSet<i32> = tokens.iter().chain(&biased).copied().collect();
            let before: Vec<(i32, u32)> = touched.iter().map(|t| (*t, x[*t as usize].to_bits())).collect();
            assert_eq!(raw.iter().map(|(t, logit)| (*t, logit.to_bits())).collect::<Vec<_>>(), before);
            for (token, count) in tokens.iter().zip(&counts) {
                let x = &mut x[*token as usize];
                *x = if *x > 0.0 { *x / 1.5 } else { *x * 1.5 };
                *x -= if *count > 0 { 0.25 + 0.5 * *count as f32 } else { 0.0 };
            }
            biased.iter().zip(&values).for_each(|(token, value)| x[*token as usize] += value);
            let bits = |x: &[f32]| x.iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect::<Vec<_>>();
            assert_eq!(bits(row.logits), bits(&x), "{}, {n} logits", k.name());
            assert_maxima(k, &row);
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

#[test]
fn transform_scales_and_caps_each_logit() {
    on_every_isa("logit form", |k| {
        let (mut random, mut buffer) = (Random::new(34), Guarded::new(1 << 12));
        let cases = share(4_000);
        for _ in 0..cases {
            let n = random.between(1, 100);
            let mut x: Vec<f32> = (0..n).map(|_| random.unit() * 60.0).collect();
            let form = LogitTransform { scale: random.pick(&[1.0, 0.125]), softcap: random.pick(&[0.0, 30.0]) };
            x[random.below(n)] = f32::NAN;
            let got = buffer.copy(&x);
            // SAFETY: the kernel's operands are slices.
            unsafe { k.run(TransformLogits { logits: got, form }) }
            for (x, got) in x.iter().zip(got) {
                let (scaled, cap) = (f64::from(*x) * f64::from(form.scale), f64::from(form.softcap));
                let want = if cap == 0.0 { scaled } else { cap * (scaled / cap).tanh() };
                assert_eq!(got.is_nan(), want.is_nan(), "{} of {x}", k.name());
                if !want.is_nan() {
                    assert_near(*got, want, 8.0 * ROUNDING * cap.max(scaled.abs()), || format!("{} of {x}", k.name()));
                }
                // A logit that is computed alone must have the same bits.
                let mut alone = [*x];
                unsafe { k.run(TransformLogits { logits: &mut alone, form }) }
                assert_eq!(alone[0].to_bits(), got.to_bits(), "{} of {x}", k.name());
            }
        }
        cases
    });
}
