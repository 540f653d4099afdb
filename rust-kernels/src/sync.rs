//! The atomics, locks and threads on which the pool is built. tests/pool_model.rs replaces them with loom's, which
//! explores every order of threads.
#[cfg(target_arch = "wasm32")]
pub use crate::wasm::{Builder, JoinHandle};
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(target_arch = "wasm32"))]
pub use std::thread::Builder;
#[cfg(not(target_arch = "wasm32"))]
pub type JoinHandle = std::thread::JoinHandle<()>;
use crate::clock::Instant;
use std::thread::yield_now;
use std::time::Duration;

/// How long a thread spins before it sleeps. This is longer than threads wait for each other at an op, and than the gap
/// between two decode steps.
pub const SPIN: Duration = Duration::from_micros(100);

/// Spins until `done` returns true or SPIN has passed. Returns whether `done` returned true. It yields now and then,
/// because the thread for which it waits may need this core.
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
        yield_now();
    }
}
