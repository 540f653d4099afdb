//! What the pool is built on. tests/pool_model.rs puts loom's in its place, which tries every order of threads.
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread spins before it sleeps: longer than an op's skew and the gap between two steps of decode.
pub const SPIN: Duration = Duration::from_micros(100);

/// Waits for `done` a while; returns whether it came.
pub fn spin_until(done: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    loop {
        for _ in 0..64 {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if started.elapsed() > SPIN {
            return false;
        }
    }
}
