//! What this machine can do at best, measured with the same vectors that the kernels use.
use crate::kernels::peaks::F32Peak;
use crate::kernels::peaks::Int8Peak;
use crate::kernels::peaks::Read;
use crate::simd::Isa;
use std::time::Instant;

/// Read bandwidth in GB/s, int8 and f32 peaks in 10^9 operations (a multiply-add is two) a second, with `threads`
/// threads; each the best of five rounds.
pub fn measure(isa: Isa, threads: usize) -> [f64; 3] {
    // Larger than any last-level cache there is to fear, in all.
    let share = (512 << 20) / threads;
    let buffers: Vec<Vec<u8>> = (0..threads).map(|t| vec![t as u8 + 1; share]).collect();
    // SAFETY: these kernels have no operands but a slice.
    let bandwidth = best(threads, |t| {
        std::hint::black_box(unsafe { isa.run(Read(&buffers[t])) });
        share as u64
    });
    drop(buffers);
    let int8 = best(threads, |_| unsafe { isa.run(Int8Peak(200_000)) });
    let f32 = best(threads, |_| unsafe { isa.run(F32Peak(2_000_000)) });
    [bandwidth, 2.0 * int8, 2.0 * f32]
}

/// Work of all threads over the time that the slowest took, in 10^9 a second.
fn best(threads: usize, work: impl Fn(usize) -> u64 + Sync) -> f64 {
    let round = || {
        let start = Instant::now();
        let done: u64 = std::thread::scope(|s| {
            let handles: Vec<_> = (0..threads)
                .map(|t| {
                    s.spawn({
                        let work = &work;
                        move || work(t)
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap_or(0)).sum()
        });
        done as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..5).map(|_| round()).fold(0.0, f64::max)
}
