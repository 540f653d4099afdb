//! Kernels of known size that measure how fast this machine computes and reads at best.
use crate::simd::{Ahead, Kernel, Simd};

/// Number of independent sums. It exceeds a multiply-add's latency times its throughput, and the sums fit in sixteen
/// registers.
const CHAINS: usize = 12;

/// Runs some rounds of int8 dot products in the kernels' register tile, and returns the number of multiply-adds. On a
/// CPU with AMX it still uses the vector instructions, so that shares of the peak are comparable (docs/lab/2026-11.md).
pub struct Int8Peak(pub u64);

impl Kernel for Int8Peak {
    type Output = u64;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> u64 {
        // A product that adds to its own sum needs twelve independent sums, or this would measure the latency. Sixteen
        // registers have room for the codes of two panels; those of three would be read from memory each time.
        unsafe {
            match S::PANELS {
                3.. => int8_tile::<S, 3, 4>(s, self.0),
                2 if S::BYTES_AS_STORED => int8_tile::<S, 2, 6>(s, self.0),
                // A CPU without a byte dot product uses 4-bit codes, because their products take the fewest
                // instructions.
                2 => int8_unit::<S, 2, 4>(s, self.0 / 2),
                _ => int8_tile::<S, 1, 4>(s, self.0),
            }
        }
    }
}

#[inline(always)]
unsafe fn int8_tile<S: Simd, const P: usize, const N: usize>(s: S, rounds: u64) -> u64 {
    let (codes, x) = ([[17u8; 16 * 16]; P], [[3i8; 32]; N]);
    unsafe {
        let mut acc = [[s.i_splat(0); N]; P];
        for _ in 0..rounds {
            // `black_box` hides the pointers in each round. Otherwise the compiler computes AVX2's products only once.
            let (w, x) = (std::hint::black_box(codes[0].as_ptr()), std::hint::black_box(x.as_ptr().cast()));
            s.dot16_tile::<5, P, N>(&mut acc, w, codes[0].len(), x);
        }
        std::hint::black_box(acc.map(|panel| panel.map(|a| s.i_sum(a))));
    }
    rounds * (P * N * S::LANES * 16) as u64
}

#[inline(always)]
unsafe fn int8_unit<S: Simd, const P: usize, const N: usize>(s: S, rounds: u64) -> u64 {
    let (codes, x) = ([[3u8; 32 * 16]; P], [[3i8; 32]; N]);
    unsafe {
        let (mut acc, mut next) = ([[s.i_splat(0); N]; P], Ahead::NOTHING.over(1));
        for _ in 0..rounds {
            let (w, x) = (std::hint::black_box(codes[0].as_ptr()), std::hint::black_box(x.as_ptr().cast()));
            s.dot32_unit::<4, P, N>(&mut acc, w, codes[0].len(), x, &mut next);
        }
        std::hint::black_box(acc.map(|panel| panel.map(|a| s.i_sum(a))));
    }
    rounds * (P * N * S::LANES * 32) as u64
}

/// Runs some rounds of independent f32 FMAs, and returns the number of multiply-adds.
pub struct F32Peak(pub u64);

impl Kernel for F32Peak {
    type Output = u64;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> u64 {
        let rounds = self.0;
        let (a, b) = (s.splat(std::hint::black_box(0.5)), s.splat(std::hint::black_box(0.25)));
        let mut acc = [s.splat(0.0); CHAINS];
        for _ in 0..rounds {
            for acc in &mut acc {
                *acc = s.fma(*acc, a, b);
            }
        }
        std::hint::black_box(acc.map(|x| s.sum(x)));
        rounds * (CHAINS * S::LANES) as u64
    }
}

/// Reads every byte of a buffer. Returns a value that depends on all of them, so that the compiler keeps the reads.
pub struct Read<'a>(pub &'a [u8]);

impl Kernel for Read<'_> {
    type Output = u64;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> u64 {
        let buffer = self.0;
        let step = 4 * 4 * S::LANES;
        let mut sum = 0u8;
        unsafe {
            let mut or = [s.b_load([0u8; 64].as_ptr()); 4];
            for at in (0..buffer.len() / step * step).step_by(step) {
                for (i, v) in or.iter_mut().enumerate() {
                    *v = s.b_or(*v, s.b_load(buffer.as_ptr().add(at + i * 4 * S::LANES)));
                }
            }
            let mut bytes = [0u8; 64];
            for v in or {
                s.b_store(bytes.as_mut_ptr(), v);
                sum |= bytes.iter().fold(0, |a, b| a | b);
            }
        }
        u64::from(sum)
    }
}
