//! Tests the choice of experts against a plain sort, and the gathering and weighted sums of rows.
use super::sources::activations;
use super::support::{Guarded, ROUNDING, Random, assert_near, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::quant_rows::{QuantRows, copy_row, row_bytes};
use compy::ops::expert_sum::AddScaled;
use compy::ops::quantize::QuantizeRow;
use compy::ops::route::{Groups, RouteRow};
use compy::simd::Isa;

struct Case<'a> {
    logits: &'a [f32],
    bias: Option<&'a [f32]>,
    sigmoid: bool,
    divided: bool,
    scale: f32,
    scales: Option<&'a [f32]>,
    groups: Groups,
    used: usize,
}

/// Runs the kernel. Returns the numbers of the experts that a row chose, and their weights.
fn route(k: Isa, case: &Case, [logits, bias, scales, scratch, out]: &mut [Guarded; 5]) -> (Vec<usize>, Vec<f32>) {
    let experts = case.logits.len();
    // In the engine, rows of buffers are padded to whole vectors, and so are these.
    let row = logits.tail(experts.next_multiple_of(16));
    row[..experts].copy_from_slice(case.logits);
    row[experts..].fill(f32::NAN);
    let out = out.tail::<f32>(2 * case.used);
    // SAFETY: all pointers have the sizes that the kernel needs.
    unsafe {
        k.run(RouteRow {
            logits: row.as_ptr(),
            experts,
            bias: case.bias.map_or(std::ptr::null(), |b| bias.copy(b).as_ptr()),
            sigmoid: case.sigmoid,
            divided: case.divided,
            scale: case.scale,
            scales: case.scales.map_or(std::ptr::null(), |s| scales.copy(s).as_ptr()),
            groups: case.groups,
            used: case.used,
            out: out.as_mut_ptr(),
            scratch: scratch.tail::<f32>(3 * experts.next_multiple_of(16)).as_mut_ptr(),
        });
    }
    (out[..case.used].iter().map(|n| *n as usize).collect(), out[case.used..].to_vec())
}

/// Returns the same experts and weights, computed by sorting in f64.
fn sorted(case: &Case) -> (Vec<usize>, Vec<f64>) {
    let score = |i: usize| {
        let logit = f64::from(case.logits[i]);
        if case.sigmoid { 1.0 / (1.0 + (-logit).exp()) } else { logit }
    };
    let mut order: Vec<usize> = (0..case.logits.len()).collect();
    let all: f64 = order.iter().map(|i| score(*i).exp()).sum();
    let probability = |i: usize| if case.sigmoid { score(i) } else { score(i).exp() / all };
    let key = |i: usize| case.bias.map_or(probability(i), |b| probability(i) + f64::from(b[i]));
    let Groups { count, used: groups } = case.groups;
    let each = order.len() / count;
    let best_two = |group: usize| {
        let mut keys: Vec<f64> = (group * each..(group + 1) * each).map(key).collect();
        keys.sort_by(|a, b| b.total_cmp(a));
        keys.iter().take(2).sum::<f64>()
    };
    let mut kept: Vec<usize> = (0..count).collect();
    kept.sort_by(|a, b| best_two(*b).total_cmp(&best_two(*a)));
    order.retain(|i| kept[..groups].contains(&(i / each)));
    order.sort_by(|a, b| key(*b).total_cmp(&key(*a)));
    let mut chosen = order[..case.used].to_vec();
    chosen.sort_unstable();
    let top = chosen.iter().map(|i| score(*i)).fold(f64::NEG_INFINITY, f64::max);
    let value = |i: &usize| if case.sigmoid { score(*i) } else { (score(*i) - top).exp() };
    let sum: f64 = chosen.iter().map(value).sum();
    let total = match (case.sigmoid, case.divided) {
        (true, true) => sum.max(2f64.powi(-14)),
        (true, false) => 1.0,
        (false, true) => sum,
        (false, false) => (0..case.logits.len()).map(|i| value(&i)).sum(),
    };
    let by = f64::from(case.scale) / total;
    let own = |i: &usize| case.scales.map_or(1.0, |s| f64::from(s[*i]));
    let weights = chosen.iter().map(|i| value(i) * by * own(i)).collect();
    (chosen, weights)
}

fn memory() -> [Guarded; 5] {
    [(); 5].map(|()| Guarded::new(1 << 13))
}

#[test]
fn route_chooses_as_a_sort_does() {
    on_every_isa("route", |k| {
        let (mut random, mut memory, cases) = (Random::new(31), memory(), share(4000));
        for _ in 0..cases {
            let experts = random.pick(&[1, 4, 15, 32, 60, 128, 256, 512]);
            let (sigmoid, biased) = (random.below(2) == 0, random.below(2) == 0);
            // Numbers are multiples of 1/64, so that there are ties and rounding never reorders sums with the bias. For
            // the softmax this only holds if all numbers are large compared with rounding errors.
            let reach = if biased && !sigmoid { 1.0 } else { random.pick(&[1.0, 8.0, 20.0]) };
            let values = |random: &mut Random| -> Vec<f32> {
                (0..experts).map(|_| (random.unit() * reach * 64.0).round() / 64.0).collect()
            };
            let [logits, bias, scales] = [(); 3].map(|()| values(&mut random));
            let groups = match experts {
                32.. if random.below(2) == 0 => Groups { count: 4, used: random.between(1, 4) },
                _ => Groups::ONE,
            };
            let used = random.between(1, (experts / groups.count * groups.used).min(10));
            let bias = biased.then_some(&bias[..]);
            let scales = (random.below(2) == 0).then_some(&scales[..]);
            let (divided, scale) = (random.below(2) == 0, random.pick(&[1.0, 2.5]));
            let case = Case { logits: &logits, bias, sigmoid, divided, scale, scales, groups, used };
            let (numbers, weights) = route(k, &case, &mut memory);
            let (want, exact) = sorted(&case);
            // A rounded sigmoid, or a rounded softmax with a bias, may create ties or swap experts that f64
            // distinguishes.
            if numbers != want {
                assert!(sigmoid || groups.count > 1, "{}: {numbers:?}, want {want:?} of {logits:?}", k.name());
                continue;
            }
            for (weight, exact) in weights.iter().zip(exact) {
                assert_near(*weight, exact, 64.0 * ROUNDING * exact.abs() + 1e-37, || format!("{} weights", k.name()));
            }
        }
        cases
    });
}

#[test]
fn route_prefers_lower_numbers_among_ties_and_spreads_nan() {
    on_every_isa("route, equals", |k| {
        let mut memory = memory();
        let chosen = |logits: &[f32], sigmoid, memory: &mut _| {
            let (bias, scales, groups) = (None, None, Groups::ONE);
            route(k, &Case { logits, bias, sigmoid, divided: true, scale: 1.0, scales, groups, used: 3 }, memory)
        };
        for sigmoid in [false, true] {
            let third = 1.0 / 3.0;
            let (numbers, weights) = chosen(&[0.5; 7], sigmoid, &mut memory);
            assert_eq!(numbers, [0, 1, 2]);
            weights.iter().for_each(|w| assert_near(*w, third, ROUNDING, || "equals".into()));
            assert_eq!(chosen(&[1.0, 2.0, 1.0, 2.0, 1.0], sigmoid, &mut memory).0, [0, 1, 3]);
            // A row with NaN logits chooses experts that exist, with NaN weights.
            let (numbers, weights) = chosen(&[f32::NAN, 0.0, f32::NAN, f32::NAN], sigmoid, &mut memory);
            assert_eq!(numbers, [0, 1, 2]);
            assert!(weights.iter().all(|w| w.is_nan()));
            assert!(chosen(&[f32::NAN, 3.0, 2.0, 1.0], sigmoid, &mut memory).1.iter().all(|w| w.is_nan()));
        }
        // A bias affects the choice but not the weights. Among experts with negligible scores the lower number wins.
        let logits = [0.0, 2.0, -100.0, 2.0, -99.0];
        let bias = [0.5, -1.0, 0.25, 0.0, 0.25];
        let case = Case {
            logits: &logits,
            bias: Some(&bias),
            sigmoid: false,
            divided: true,
            scale: 1.0,
            scales: None,
            groups: Groups::ONE,
            used: 3,
        };
        let (numbers, weights) = route(k, &case, &mut memory);
        assert_eq!(numbers, [0, 2, 3]);
        weights
            .iter()
            .zip(sorted(&case).1)
            .for_each(|(w, exact)| assert_near(*w, exact, 4.0 * ROUNDING, || "biased".into()));
        let spoilt = Case { logits: &[0.0, f32::NAN, 0.0, 0.0, 0.0], ..case };
        assert!(route(k, &spoilt, &mut memory).1.iter().all(|w| w.is_nan()));
        // If all scores round to 0, they are not divided by their sum.
        let (_, weights) = chosen(&[-200.0; 5], true, &mut memory);
        assert!(weights.iter().all(|w| (0.0..1e-30).contains(w)), "{weights:?}");
        let (_, weights) = chosen(&[-3e38, 3e38, 0.0], false, &mut memory);
        assert_eq!(weights, [0.0, 1.0, 0.0]);
        8
    });
}

#[test]
fn route_chooses_among_the_best_groups() {
    on_every_isa("route, groups", |k| {
        let mut memory = memory();
        let mut chosen = |logits: &[f32], [count, groups]: [usize; 2], sigmoid, bias: &[f32], used| {
            let groups = Groups { count, used: groups };
            let bias = (!bias.is_empty()).then_some(bias);
            let case = Case { logits, bias, sigmoid, divided: true, scale: 2.5, scales: None, groups, used };
            route(k, &case, &mut memory)
        };
        for sigmoid in [false, true] {
            // The best expert is in a group that loses: the sum of its two best scores is smaller than another group's.
            let logits = [1.5, -9.0, -9.0, 1.0, 1.0, -9.0, 0.0, 0.0, -9.0, -9.0, -9.0, -9.0];
            assert_eq!(chosen(&logits, [4, 1], sigmoid, &[], 2).0, [3, 4]);
            let next = if sigmoid { [3, 4, 6] } else { [0, 3, 4] };
            assert_eq!(chosen(&logits, [4, 2], sigmoid, &[], 3).0, next);
            // The lower group wins a tie, and the lower expert within a group. The second line chooses all experts of a
            // group.
            assert_eq!(chosen(&[0.5; 12], [3, 2], sigmoid, &[], 5).0, [0, 1, 2, 3, 4]);
            assert_eq!(chosen(&[0.0, 0.0, 1.0, 1.0, 1.0, 1.0], [3, 1], sigmoid, &[], 2).0, [2, 3]);
            // If all groups are chosen, the result is the same as without groups.
            assert_eq!(chosen(&logits, [4, 4], sigmoid, &[], 3).0, chosen(&logits, [1, 1], sigmoid, &[], 3).0);
            // A bias also affects the choice of groups, but not the weights.
            let (numbers, weights) = chosen(&[0.5; 4], [2, 1], sigmoid, &[-1.0, 0.0, -0.25, -0.25], 2);
            assert_eq!(numbers, [2, 3]);
            assert_eq!(weights, [1.25, 1.25]);
            // A row with NaN logits chooses experts that exist, also with groups.
            let (numbers, weights) = chosen(&[f32::NAN, 0.0, 1.0, f32::NAN, 2.0, 0.0], [3, 1], sigmoid, &[], 2);
            assert!(numbers[0] < numbers[1] && numbers[1] < 6);
            assert!(weights.iter().all(|w| w.is_nan()));
            assert!(chosen(&[f32::NAN; 6], [3, 2], sigmoid, &[], 3).1.iter().all(|w| w.is_nan()));
        }
        16
    });
}

#[test]
fn copy_row_equals_quantizing_the_row() {
    on_every_isa("copy_row", |k| {
        let (mut random, cases) = (Random::new(32), share(400));
        let [mut a, mut b, mut c] = [(); 3].map(|()| Guarded::new(1 << 15));
        for _ in 0..cases {
            let columns = BLOCK * random.between(1, 12);
            let [from, to] = [(); 2].map(|()| random.pick(&[1, 2, 4, 8, 16]));
            let rows = |memory: &mut Guarded, tile: usize| {
                let base = memory.tail::<u8>(32usize.next_multiple_of(tile) * row_bytes(columns));
                base.fill(0xa5);
                QuantRows { base: base.as_mut_ptr(), columns, tile, paired: k.row_pairs() }
            };
            let (from, to, want) = (rows(&mut a, from), rows(&mut b, to), rows(&mut c, to));
            let (row, to_row, x) = (random.below(32), random.below(32), activations(columns, &mut random));
            // SAFETY: all pointers have 32 rows.
            unsafe {
                k.run(QuantizeRow { x: x.as_ptr(), out: &from, row });
                k.run(QuantizeRow { x: x.as_ptr(), out: &want, row: to_row });
                copy_row(&from, row, &to, to_row);
            }
            let bytes = |memory: &mut Guarded| memory.tail::<u8>(32 * row_bytes(columns)).to_vec();
            assert!(bytes(&mut b) == bytes(&mut c), "{} row {row} of {columns} columns to {to_row}", k.name());
        }
        cases
    });
}

#[test]
fn add_scaled_matches_f64() {
    on_every_isa("add_scaled", |k| {
        let (mut random, cases) = (Random::new(33), share(1000));
        let [mut from, mut to] = [(); 2].map(|()| Guarded::new(1 << 12));
        for _ in 0..cases {
            let n = 16 * random.between(1, 18);
            let (x, y, by) = (activations(n, &mut random), activations(n, &mut random), random.unit());
            let (from, to) = (from.copy(&x), to.copy(&y));
            // SAFETY: both pointers hold n floats.
            unsafe { k.run(AddScaled { x: from.as_ptr(), by, n, to: to.as_mut_ptr() }) }
            for (i, sum) in to.iter().enumerate() {
                let (product, y) = (f64::from(x[i]) * f64::from(by), f64::from(y[i]));
                // Without a fused multiply-add the kernel rounds twice.
                assert_near(*sum, product + y, ROUNDING * (2.0 * product.abs() + y.abs()) + 1e-44, || k.name().into());
            }
        }
        cases
    });
}
