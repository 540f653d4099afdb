//! Tests the dot products of codes against plain Rust.
use super::support::{Guarded, Random, on_every_isa, share};
use super::vectors::{check, lanes};
use compy::simd::{Ahead, BIAS_BITS, Kernel, Simd};

/// Checks `dot16` with codes of BITS bits. At the extremes of codes and x, sums in 16 bits would saturate.
struct Dot<const BITS: u32>;

impl<const BITS: u32> Kernel for Dot<BITS> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let mut random = Random::new(13);
        let mut buffer = Guarded::new(1 << 12);
        let rounds = share(2000);
        for round in 0..rounds {
            let (least, most) = (0u8, (255u32 >> (8 - BITS)) as u8);
            let code = |r: &mut Random| match round % 4 {
                0 => most,
                1 => least,
                2 => r.pick(&[least, most]),
                _ => r.bits() as u8 & most,
            };
            let x = |r: &mut Random| match round / 4 % 5 {
                0 => 127i8,
                1 => -127,
                2 => r.pick(&[127, -127]),
                _ => r.between(0, 254) as u8 as i8,
            };
            let codes: Vec<u8> = (0..16 * S::LANES).map(|_| code(&mut random)).collect();
            let xs: Vec<i8> = (0..16).map(|_| x(&mut random).max(-127)).collect();
            let got = unsafe {
                let w = [0, 1, 2, 3].map(|g| s.b_load(codes[4 * g * S::LANES..].as_ptr()));
                lanes(s, s.i_to_f(s.dot16::<BITS>(s.i_splat(-5), w, buffer.copy(&xs).as_ptr())))
            };
            let bias = if BITS == 8 { 128 - S::WIDE_BIAS } else { 0 };
            for (lane, got) in got.into_iter().enumerate() {
                let term =
                    |c: usize| (i32::from(codes[c / 4 * 4 * S::LANES + 4 * lane + c % 4]) - bias) * i32::from(xs[c]);
                assert_eq!(got, ((0..16).map(term).sum::<i32>() - 5) as f32, "{BITS} bits, round {round}, lane {lane}");
            }
        }
        rounds
    }
}

/// Checks products of a block's 32 columns with two panels and four tokens, at the extremes of `Dot`. The codes come
/// from registers, from a decoded unit, and from its halves.
struct BlockDots<const BITS: u32>;

impl<const BITS: u32> Kernel for BlockDots<BITS> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let (mut random, rounds) = (Random::new(19), share(500));
        let (half, most) = (S::unit_code_bytes::<BITS>(), (255u32 >> (8 - BITS)) as u8);
        let (mut unit, panel) = (vec![0u8; 4 * half], 2 * half);
        for round in 0..rounds {
            let code = |r: &mut Random| match round % 4 {
                0 => most,
                1 => 0,
                2 => r.pick(&[0, most]),
                _ => r.bits() as u8 & most,
            };
            let x = |r: &mut Random| match round / 4 % 4 {
                0 => 127i8,
                1 => -127,
                2 => r.pick(&[127, -127]),
                _ => (r.below(255) as i32 - 127) as i8,
            };
            let codes: Vec<u8> = (0..2 * 32 * S::LANES).map(|_| code(&mut random)).collect();
            let xs: Vec<i8> = (0..4 * 32).map(|_| x(&mut random)).collect();
            let vector = |j: usize, g: usize| unsafe { s.b_load(codes[(j * 8 + g) * 4 * S::LANES..].as_ptr()) };
            let mut rows = [[s.i_splat(-5); 4]; 2];
            let mut whole = [0, 1].map(|j| {
                let mut first = [0f32; 16];
                unsafe { s.put_first_sums(first.as_mut_ptr(), std::array::from_fn(|g| vector(j, g))) };
                let first = if BITS == 8 { unsafe { s.first_sums(first.as_ptr()) } } else { s.i_splat(BIAS_BITS) };
                [s.i_add(first, s.i_splat((-5i32).wrapping_sub(BIAS_BITS))); 4]
            });
            let mut halves = whole;
            let (x, nothing) = (xs.as_ptr(), Ahead::NOTHING);
            for j in 0..2 {
                for g in 0..8 {
                    let at = j * panel + g / 4 * half;
                    unsafe { s.put_codes::<BITS>(unit[at..].as_mut_ptr(), g % 4, vector(j, g)) }
                }
                let w = std::array::from_fn(|g| vector(j, g));
                unsafe { s.dot32_rows::<BITS, 4>(&mut rows[j], w, x, nothing) };
            }
            unsafe {
                s.dot32_unit::<BITS, 2, 4>(&mut whole, unit.as_ptr(), panel, x, &mut nothing.over(1));
                for i in 0..2 {
                    s.dot16_unit::<BITS, 2, 4>(&mut halves, unit[i * half..].as_ptr(), panel, x.add(16 * i));
                }
            }
            let bias = if BITS == 8 { 128 - S::WIDE_BIAS } else { 0 };
            for (j, i) in (0..2).flat_map(|j| (0..4).map(move |i| (j, i))) {
                for (way, sums) in [("rows", rows[j][i]), ("unit", whole[j][i]), ("halves", halves[j][i])] {
                    for (lane, got) in unsafe { lanes(s, s.i_to_f(sums)) }.into_iter().enumerate() {
                        let code = |c: usize| codes[(j * 8 + c / 4) * 4 * S::LANES + 4 * lane + c % 4];
                        let term = |c: usize| (i32::from(code(c)) - bias) * i32::from(xs[32 * i + c]);
                        let sum = (0..32).map(term).sum::<i32>() - 5;
                        assert_eq!(
                            got, sum as f32,
                            "{BITS} bits, {way}, round {round}, panel {j}, token {i}, lane {lane}"
                        );
                    }
                }
            }
        }
        rounds
    }
}

/// Checks `dot16_signed` as `Dot` checks `dot16`.
struct SignedDot;

impl Kernel for SignedDot {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let (mut random, mut buffer) = (Random::new(15), Guarded::new(1 << 12));
        let rounds = share(2000);
        for round in 0..rounds {
            let code = |r: &mut Random| match round % 4 {
                0 => 127i8,
                1 => -127,
                2 => r.pick(&[127, -127]),
                _ => (r.between(1, 255) as u8 ^ 0x80).cast_signed(),
            };
            let x = |r: &mut Random| if round / 4 % 3 == 0 { 127 } else { r.below(128) as i8 };
            let codes: Vec<i8> = (0..16 * S::LANES).map(|_| code(&mut random)).collect();
            let xs: Vec<i8> = (0..16).map(|_| x(&mut random)).collect();
            let got = unsafe {
                let w = [0, 1, 2, 3].map(|g| s.b_load(codes[4 * g * S::LANES..].as_ptr().cast()));
                lanes(s, s.i_to_f(s.dot16_signed(s.i_splat(7), w, buffer.copy(&xs).as_ptr())))
            };
            for (lane, got) in got.into_iter().enumerate() {
                let term = |c: usize| i32::from(codes[c / 4 * 4 * S::LANES + 4 * lane + c % 4]) * i32::from(xs[c]);
                assert_eq!(got, ((0..16).map(term).sum::<i32>() + 7) as f32, "round {round}, lane {lane}");
            }
        }
        rounds
    }
}

/// Checks `dot_pair` with codes up to their extremes.
struct PairDot;

impl Kernel for PairDot {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> usize {
        let (mut random, mut buffer) = (Random::new(17), Guarded::new(1 << 12));
        let rounds = share(2000);
        for round in 0..rounds {
            let code = |r: &mut Random| match round % 3 {
                0 => r.pick(&[32767i16, -32767]),
                1 => r.below(200) as i16 - 100,
                _ => (r.bits() as i16).max(-32767),
            };
            let codes: Vec<i16> = (0..2 * S::LANES).map(|_| code(&mut random)).collect();
            let x: Vec<i16> = (0..2).map(|_| code(&mut random)).collect();
            let start = random.below(2001) as i32 - 1000;
            let got = unsafe {
                let w = s.b_load(buffer.copy(&codes).as_ptr().cast());
                lanes(s, s.i_to_f(s.dot_pair(s.i_splat(start), w, buffer.copy(&x).as_ptr())))
            };
            for (lane, got) in got.into_iter().enumerate() {
                let at = |j: usize| if S::PAIRS_TOGETHER { 2 * lane + j } else { j * S::LANES + lane };
                let sum: i32 = (0..2).map(|j| i32::from(codes[at(j)]) * i32::from(x[j])).sum();
                assert_eq!(got, (sum + start) as f32, "round {round}, lane {lane}");
            }
        }
        rounds
    }
}

#[test]
fn dot_products_are_exact_at_the_extremes() {
    on_every_isa("dot products (not counted as cases of kernels)", |k| {
        check(k, Dot::<2>)
            + check(k, Dot::<4>)
            + check(k, Dot::<5>)
            + check(k, Dot::<6>)
            + check(k, Dot::<7>)
            + check(k, Dot::<8>)
            + check(k, BlockDots::<4>)
            + check(k, BlockDots::<5>)
            + check(k, BlockDots::<6>)
            + check(k, BlockDots::<7>)
            + check(k, BlockDots::<8>)
            + check(k, SignedDot)
            + check(k, PairDot)
    });
}
