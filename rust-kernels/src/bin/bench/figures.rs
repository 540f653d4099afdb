//! Measures times, computes quantiles and formats JSON.
use compy::kernels::peaks::F32Peak;
use compy::kernels::peaks::Int8Peak;
use compy::kernels::peaks::Read;
use compy::memory::{Pages, Region};
use compy::pool::Pool;
use compy::simd::Isa;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Returns how many seconds `run` takes. With one thread this is the thread's CPU time, so that other programs do not
/// count. With several threads it is wall-clock time.
pub fn seconds(threads: usize, run: impl FnOnce()) -> f64 {
    let start = now(threads);
    run();
    now(threads) - start
}

fn now(threads: usize) -> f64 {
    let clock = if threads == 1 { libc::CLOCK_THREAD_CPUTIME_ID } else { libc::CLOCK_MONOTONIC };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes to the struct `time` above.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0
}

pub fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

/// Returns the size of the last-level cache in bytes, as Linux reports it. On other systems it returns a size larger
/// than most caches.
pub fn last_level_cache() -> usize {
    (0..8)
        .filter_map(|i| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size")).ok())
        .filter_map(|size| Some(size.trim().strip_suffix('K')?.parse::<usize>().ok()? << 10))
        .max()
        .unwrap_or(64 << 20)
}

/// Bytes that each thread reads for one bandwidth sample.
const READ_BYTES: usize = 4 << 20;

/// Samples the peak rates of a pool's threads: GB/s read, int8 GOPS, f32 GFLOPS.
pub struct Limits {
    /// Memory larger than any cache. Each bandwidth sample reads another part of it.
    memory: Region,
    turn: usize,
}

impl Limits {
    pub fn new(threads: usize, bytes: usize) -> Result<Self, String> {
        let step = READ_BYTES * threads;
        let memory = Region::new(bytes.next_multiple_of(step), Pages::Huge, "bandwidth").map_err(|e| e.to_string())?;
        // SAFETY: the memory is new and has this size. Bytes other than zero make its pages resident.
        unsafe { memory.at(0).write_bytes(1, memory.len()) };
        Ok(Self { memory, turn: 0 })
    }

    pub fn sample(&mut self, k: Isa, pool: &mut Pool) -> [f64; 3] {
        let threads = pool.threads();
        let mut rate = |work: &(dyn Fn(usize) -> u64 + Sync)| {
            let done = AtomicU64::new(0);
            let took = seconds(threads, || {
                let run = pool.run(&|w| {
                    done.fetch_add(work(w.index), Relaxed);
                });
                run.expect("kernels do not panic");
            });
            done.into_inner() as f64 / took / 1e9
        };
        // SAFETY: the kernels have no operands except slices. The same holds for the two calls below.
        let int8 = 2.0 * rate(&|_| unsafe { k.run(Int8Peak(10_000)) });
        let f32 = 2.0 * rate(&|_| unsafe { k.run(F32Peak(100_000)) });
        let step = READ_BYTES * threads;
        let start = self.turn * step % self.memory.len();
        self.turn += 1;
        let read = rate(&|thread| {
            let from = self.memory.at(start + thread * READ_BYTES);
            // SAFETY: `start` is a multiple of the bytes that all threads read, and within the memory.
            std::hint::black_box(unsafe { k.run(Read(std::slice::from_raw_parts(from, READ_BYTES))) });
            READ_BYTES as u64
        });
        [read, int8, f32]
    }
}

/// Returns `"name": number` for JSON, with four decimals.
pub fn field(name: &str, value: f64) -> String {
    format!("\"{name}\": {value:.4}")
}
