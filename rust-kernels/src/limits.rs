//! Measures this machine's limits (bandwidth, int8 and f32 rates) with the vector instructions that the kernels use.
use crate::bail;
use crate::clock::Instant;
use crate::error::Result;
use crate::kernels::peaks::F32Peak;
use crate::kernels::peaks::Int8Peak;
use crate::kernels::peaks::Read;
use crate::pool::Pool;
use crate::simd::Isa;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Returns the read bandwidth in GB/s, then the int8 and f32 peaks in 10^9 operations a second. All threads of the pool
/// take part. A multiply-add counts as two operations. Each figure is the best of five rounds.
///
/// # Errors
/// A kernel panicked.
pub fn measure(isa: Isa, pool: &mut Pool) -> Result<[f64; 3]> {
    // The threads' shares together are larger than any last-level cache.
    let share = (512 << 20) / pool.threads();
    let buffers: Vec<Vec<u8>> = (0..pool.threads()).map(|t| vec![t as u8 + 1; share]).collect();
    // SAFETY: these kernels have no operands other than a slice.
    let bandwidth = best(pool, |t| {
        std::hint::black_box(unsafe { isa.run(Read(&buffers[t])) });
        share as u64
    })?;
    drop(buffers);
    let int8 = best(pool, |_| unsafe { isa.run(Int8Peak(200_000)) })?;
    let f32 = best(pool, |_| unsafe { isa.run(F32Peak(2_000_000)) })?;
    Ok([bandwidth, 2.0 * int8, 2.0 * f32])
}

/// Returns the work of all threads divided by the time of the slowest thread, in 10^9 units of work a second.
fn best(pool: &mut Pool, work: impl Fn(usize) -> u64 + Sync) -> Result<f64> {
    let mut best = 0f64;
    for _ in 0..5 {
        let (start, done) = (Instant::now(), AtomicU64::new(0));
        let round = pool.run(&|worker| {
            done.fetch_add(work(worker.index), SeqCst);
        });
        if let Err(panic) = round {
            bail!("Measuring panicked: {panic}");
        }
        best = best.max(done.load(SeqCst) as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    Ok(best)
}
