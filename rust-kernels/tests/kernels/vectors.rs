//! Tests the vector operations of each instruction set against plain Rust.
use super::support::{Guarded, Random, on_every_isa, share};
use compy::half::{bf16_to_f32, e4m3_half, e8m0_half, f16_to_f32, f32_to_f16};
use compy::simd::{Isa, Kernel, Simd, exp};

/// Runs a check as a kernel. Returns the number of its cases.
pub fn check(isa: Isa, check: impl Kernel<Output = usize>) -> usize {
    // SAFETY: checks have no operands.
    unsafe { isa.run(check) }
}

/// Returns the lanes of a vector of floats; `bytes` returns those of a vector with four bytes per lane. Both use the
/// instruction set that runs the check.
pub unsafe fn lanes<S: Simd>(s: S, v: S::F) -> Vec<f32> {
    let mut lanes = vec![0f32; S::LANES];
    unsafe { s.store(lanes.as_mut_ptr(), v) };
    lanes
}

unsafe fn bytes<S: Simd>(s: S, v: S::B) -> Vec<u8> {
    let mut bytes = vec![0u8; 4 * S::LANES];
    unsafe { s.b_store(bytes.as_mut_ptr(), v) };
    bytes
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

struct Exp;

impl Kernel for Exp {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let step = if share(100) == 100 { 401 } else { 40_009 };
        let top = 88f32.to_bits();
        let inputs: Vec<f32> = (0..=top).step_by(step).flat_map(|b| [f32::from_bits(b), -f32::from_bits(b)]).collect();
        let mut worst = 0.0f64;
        for chunk in inputs.chunks_exact(S::LANES) {
            let got = unsafe { lanes(s, exp(s, s.load(chunk.as_ptr()))) };
            for (x, y) in chunk.iter().zip(got) {
                let want = f64::from(*x).exp();
                if *x < -87.0 {
                    assert_eq!(y, 0.0, "exp({x:e})");
                    continue;
                }
                let unit = f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
                let off = (f64::from(y) - want).abs() / unit;
                assert!(off <= 2.0, "exp({x:e}) = {y:e}, off by {off:.2} units in the last place");
                worst = worst.max(off);
            }
        }
        for (x, want) in [(f32::NEG_INFINITY, 0.0), (-1e30, 0.0), (0.0, 1.0), (-0.0, 1.0), (-87.5, 0.0)] {
            assert_eq!(unsafe { lanes(s, exp(s, s.splat(x))) }[0], want, "exp({x})");
        }
        println!("exp: {} values, off by at most {worst:.3} units in the last place", inputs.len());
        inputs.len() / S::LANES
    }
}

#[test]
fn exp_is_within_two_units_in_the_last_place() {
    on_every_isa("exp (not counted as cases of kernels)", |k| check(k, Exp));
}

struct Conversions;

impl Kernel for Conversions {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let mut buffer = Guarded::new(1 << 12);
        for start in (0..=u16::MAX as usize).step_by(S::LANES) {
            let numbers: Vec<u16> = (start..start + S::LANES).map(|h| h as u16).collect();
            let halves = buffer.copy(&numbers).as_ptr();
            let (wide, brain) = unsafe { (s.load_f16(halves), s.load_bf16(halves)) };
            let mut back = vec![0u16; S::LANES];
            unsafe { s.store_f16(back.as_mut_ptr(), wide) };
            let (wide, brain) = unsafe { (lanes(s, wide), lanes(s, brain)) };
            for (i, h) in numbers.iter().enumerate() {
                assert!(same(wide[i], f16_to_f32(*h)), "f16 {h:#06x}: {}", wide[i]);
                assert!(same(brain[i], bf16_to_f32(*h)), "bf16 {h:#06x}: {}", brain[i]);
                assert!(back[i] == *h || wide[i].is_nan(), "f16 {h:#06x} came back as {:#06x}", back[i]);
            }
        }
        for start in (0..256).step_by(S::LANES) {
            let numbers: Vec<u8> = (start..start + S::LANES).map(|e| e as u8).collect();
            let at = buffer.copy(&numbers).as_ptr();
            let (unsigned, signed, powers) =
                unsafe { (lanes(s, s.load_u8(at)), lanes(s, s.load_i8(at.cast())), lanes(s, s.load_e8m0_half(at))) };
            for (i, e) in numbers.iter().enumerate() {
                assert_eq!(unsigned[i], f32::from(*e));
                assert_eq!(signed[i], f32::from(*e as i8));
                assert!(*e == 255 || same(powers[i], e8m0_half(*e)), "E8M0 {e}: {:e}", powers[i]);
                if *e < 128 {
                    let small = unsafe { lanes(s, s.load_e4m3_half(at)) }[i];
                    assert_eq!(small, e4m3_half(*e), "E4M3 {e}");
                }
            }
        }
        (1 << 16) / S::LANES
    }
}

#[test]
fn conversions_are_exact() {
    on_every_isa("conversions (not counted as cases of kernels)", |k| check(k, Conversions));
}

struct Arithmetic;

impl Kernel for Arithmetic {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let mut random = Random::new(11);
        let mut buffer = Guarded::new(1 << 12);
        let rounds = share(5000);
        for round in 0..rounds {
            let draw = |random: &mut Random| -> Vec<f32> {
                let special = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5, 65519.9, 65520.0, 6e-8, 1e-40];
                let one = |r: &mut Random| if r.below(4) == 0 { r.pick(&special) } else { r.unit() * 127.0 };
                (0..S::LANES).map(|_| one(random)).collect()
            };
            let (a, b, c) = (draw(&mut random), draw(&mut random), draw(&mut random));
            let n: Vec<f32> = (0..S::LANES).map(|_| random.below(254) as f32 - 126.0).collect();
            let load = |x: &[f32]| unsafe { s.load(x.as_ptr()) };
            let (va, vb, vc) = (load(&a), load(&b), load(&c));
            let each = |name: &str, v: S::F, f: &dyn Fn(usize) -> f32| {
                for (i, got) in unsafe { lanes(s, v) }.into_iter().enumerate() {
                    assert!(same(got, f(i)), "{name}, round {round}, lane {i}: {got:e} and not {:e}", f(i));
                }
            };
            unsafe {
                each("add", s.add(va, vb), &|i| a[i] + b[i]);
                each("sub", s.sub(va, vb), &|i| a[i] - b[i]);
                each("mul", s.mul(va, vb), &|i| a[i] * b[i]);
                each("div", s.div(va, vb), &|i| a[i] / b[i]);
                each("abs", s.abs(va), &|i| a[i].abs());
                each("round", s.round(va), &|i| a[i].round_ties_even());
                each("pow2", s.pow2(load(&n)), &|i| f32::from_bits(((n[i] as i32 + 127) as u32) << 23));
                each("zero_below", s.zero_below(va, vb, vc), &|i| if a[i] >= b[i] { c[i] } else { 0.0 });
                for (i, got) in lanes(s, s.max(va, vb)).into_iter().enumerate() {
                    assert_eq!(got, a[i].max(b[i]));
                }
                for (i, got) in lanes(s, s.min(va, vb)).into_iter().enumerate() {
                    assert_eq!(got, a[i].min(b[i]));
                }
                let fused = |name: &str, v: S::F, sign: f32| {
                    for (i, got) in lanes(s, v).into_iter().enumerate() {
                        let split = c[i] + sign * (a[i] * b[i]);
                        let once = (sign * a[i]).mul_add(b[i], c[i]);
                        // In a multiply-add, the scalar set rounds twice and all other sets once.
                        let wanted = if std::any::type_name::<S>().ends_with("Scalar") { split } else { once };
                        assert!(same(got, wanted), "{name}, round {round}, lane {i}: {got:e} and not {wanted:e}");
                    }
                };
                fused("fma", s.fma(va, vb, vc), 1.0);
                fused("fnma", s.fnma(va, vb, vc), -1.0);
                let sum: f64 = a.iter().map(|x| f64::from(*x)).sum();
                assert!((f64::from(s.sum(va)) - sum).abs() <= 1e-6 * a.iter().map(|x| f64::from(x.abs())).sum::<f64>());
                assert_eq!(s.largest(va), a.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let halves = buffer.tail::<u16>(S::LANES);
                s.store_f16(halves.as_mut_ptr(), va);
                for (x, h) in a.iter().zip(&*halves) {
                    assert_eq!(*h, f32_to_f16(*x), "{x:e} as a half");
                }
                let clamped: Vec<f32> = a.iter().map(|x| x.clamp(-127.0, 127.0)).collect();
                let codes = buffer.tail::<i8>(S::LANES);
                let q = s.store_i8(codes.as_mut_ptr(), load(&clamped));
                each("store_i8", s.i_to_f(q), &|i| clamped[i].round_ties_even() + 0.0);
                for (x, code) in clamped.iter().zip(&*codes) {
                    assert_eq!(f32::from(*code), x.round_ties_even(), "{x} as a byte");
                }
                let large: Vec<f32> = a.iter().map(|x| x.clamp(-128.0, 128.0) * 255.9).collect();
                let codes = buffer.tail::<i16>(S::LANES);
                s.store_i16(codes.as_mut_ptr(), load(&large));
                for (x, code) in large.iter().zip(&*codes) {
                    assert_eq!(f32::from(*code), x.round_ties_even(), "{x} in 16 bits");
                }
                let (other, pairs) =
                    (large.iter().rev().copied().collect::<Vec<_>>(), buffer.tail::<i16>(2 * S::LANES));
                s.store_pairs(pairs.as_mut_ptr(), load(&large), load(&other));
                for (i, pair) in pairs.chunks(2).enumerate() {
                    let want = [large[i], other[i]].map(|x| x.round_ties_even() as i16);
                    assert_eq!(pair, want, "lane {i} in pairs");
                }
                let codes: Vec<i8> = clamped.iter().map(|x| x.round_ties_even() as i8).collect();
                let twice = s.i_add(q, s.i_add(q, s.i_splat(3)));
                let sum: i32 = codes.iter().map(|c| 2 * i32::from(*c) + 3).sum();
                assert_eq!(s.i_sum(twice), sum);
            }
        }
        rounds
    }
}

#[test]
fn arithmetic_matches_plain_rust() {
    on_every_isa("arithmetic (not counted as cases of kernels)", |k| check(k, Arithmetic));
}

struct NanMax;

impl Kernel for NanMax {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        unsafe {
            let (one, nan) = (s.splat(1.0), s.splat(f32::NAN));
            assert_eq!(lanes(s, s.max(nan, one))[0], 1.0);
            assert_eq!(lanes(s, s.min(nan, one))[0], 1.0);
            assert!(lanes(s, s.max(one, nan))[0].is_nan());
            assert!(lanes(s, s.min(one, nan))[0].is_nan());
            assert_eq!(lanes(s, s.zero_below(nan, one, one))[0], 0.0);
        }
        5
    }
}

#[test]
fn max_and_min_return_the_second_operand_if_one_is_nan() {
    on_every_isa("NaN (not counted as cases of kernels)", |k| check(k, NanMax));
}

struct Bytes;

impl Kernel for Bytes {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let mut random = Random::new(12);
        let mut buffer = Guarded::new(1 << 12);
        let rounds = share(2000);
        for _ in 0..rounds {
            let draw = |random: &mut Random| {
                let mut v = vec![0u8; 4 * S::LANES];
                random.fill(&mut v);
                v
            };
            let (a, b) = (draw(&mut random), draw(&mut random));
            let mut table = [0u8; 16];
            random.fill(&mut table);
            unsafe {
                let (va, vb) = (s.b_load(buffer.copy(&a).as_ptr()), s.b_load(b.as_ptr()));
                let each = |v: S::B, f: &dyn Fn(usize) -> u8| {
                    for (i, got) in bytes(s, v).into_iter().enumerate() {
                        assert_eq!(got, f(i), "byte {i} of {:#04x}", a[i]);
                    }
                };
                each(va, &|i| a[i]);
                each(s.b_and(va, 0x5a), &|i| a[i] & 0x5a);
                each(s.b_or(va, vb), &|i| a[i] | b[i]);
                each(s.b_lookup(&table, s.b_and(va, 15)), &|i| table[usize::from(a[i] & 15)]);
                each(s.b_mirror(va, vb, 4, 86), &|i| if b[i] & 4 != 0 { 86u8.wrapping_sub(a[i]) } else { a[i] });
                each(s.b_triple(va), &|i| a[i].wrapping_mul(3));
                each(s.b_pairs::<false>(va), &|i| a[i / 4 * 4 + i % 4 / 2]);
                each(s.b_pairs::<true>(va), &|i| a[i / 4 * 4 + i % 4 / 2 + 2]);
                let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|c| a[i / 4 * 4 + c]));
                each(s.b_and32(va, 0x0c03_ff00), &|i| (word(i) & 0x0c03_ff00).to_le_bytes()[i % 4]);
                for n in [0, 1, 12, 31] {
                    each(s.b_shr32(va, n), &|i| (word(i) >> n).to_le_bytes()[i % 4]);
                    each(s.b_shl32(va, n), &|i| (word(i) << n).to_le_bytes()[i % 4]);
                }
                for (lane, got) in lanes(s, s.b_to_f(s.b_and32(va, 0x00ff_ffff))).into_iter().enumerate() {
                    assert_eq!(got, (word(4 * lane) & 0x00ff_ffff) as f32);
                }
                look_up::<S, 128>(s, &a, &b, &mut random);
                look_up::<S, 256>(s, &a, &b, &mut random);
                look_up::<S, 512>(s, &a, &b, &mut random);
                look_up::<S, 1024>(s, &a, &b, &mut random);
                look_up::<S, 2048>(s, &a, &b, &mut random);
                for n in 0..8 {
                    each(s.b_and(s.b_shr(va, n), 0xff >> n), &|i| a[i] >> n);
                    each(s.b_and(s.b_shl(va, n), (0xff << n) as u8), &|i| a[i] << n);
                }
            }
        }
        rounds
    }
}

/// Checks `b_lookup16` in a table of N words, with indices from the bytes of two vectors.
#[inline(always)]
unsafe fn look_up<S: Simd, const N: usize>(s: S, a: &[u8], b: &[u8], random: &mut Random) {
    let table: [u16; N] = std::array::from_fn(|_| random.bits() as u16);
    let mask = (N as u32 - 1) * 0x1_0001;
    let found = unsafe {
        let index = [a, b].map(|bytes| s.b_and32(s.b_load(bytes.as_ptr()), mask));
        s.b_lookup16(&table, index).map(|v| bytes(s, v))
    };
    for (from, found) in [a, b].into_iter().zip(found) {
        for (index, word) in from.chunks_exact(2).zip(found.chunks_exact(2)) {
            let index = usize::from(u16::from_le_bytes([index[0], index[1]])) & (N - 1);
            assert_eq!(u16::from_le_bytes([word[0], word[1]]), table[index], "entry {index} of {N}");
        }
    }
}

struct Thirds;

impl Kernel for Thirds {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        for start in (0..256).step_by(4 * S::LANES) {
            let all: Vec<u8> = (start..start + 4 * S::LANES).map(|a| a as u8).collect();
            for (a, got) in all.iter().zip(unsafe { bytes(s, s.b_thirds(s.b_load(all.as_ptr()))) }) {
                assert_eq!(u16::from(got), u16::from(*a) * 3 / 256, "{a}");
            }
        }
        256
    }
}

#[test]
fn thirds_are_right_for_every_byte() {
    on_every_isa("thirds (not counted as cases of kernels)", |k| check(k, Thirds));
}

#[test]
fn byte_operations_match_plain_rust() {
    on_every_isa("bytes (not counted as cases of kernels)", |k| check(k, Bytes));
}
