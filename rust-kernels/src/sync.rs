//! What the pool is built on. tests/pool_model.rs puts loom's in its place, which tries every order of threads.
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

/// How long a thread spins before it sleeps: longer than an op's skew and the gap between two steps of decode.
pub const SPIN: Duration = Duration::from_micros(100);

/// Waits for `done` a while; returns whether it came. Where other programs want the core they have it now and then: one of them may
/// be what holds up the thread that is waited for.
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
