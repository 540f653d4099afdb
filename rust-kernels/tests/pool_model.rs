//! Explores with loom every order in which the pool's threads can run, with up to LOOM_MAX_PREEMPTIONS forced switches
//! between threads:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test --release --locked --test pool_model
//! ```
//!
//! The test fails if a thread could sleep forever or pass a barrier too early.
#![cfg(loom)]
#![allow(dead_code)] // this test compiles the pool's source again, with loom's threads

#[path = "../src/pool.rs"]
mod pool;

#[path = "../src/turns.rs"]
mod turns;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use loom::thread::Builder;

    pub type JoinHandle = loom::thread::JoinHandle<()>;

    /// Calls `done` once, then lets the thread sleep. Time does not pass in a model, and more calls would only repeat
    /// orders.
    pub fn spin_until(done: impl Fn() -> bool) -> bool {
        done()
    }
}

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicUsize;
use pool::{Items, Pool};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::SeqCst;
use turns::Turns;

/// Data that threads write without a lock. Loom fails if two threads could access it at once.
struct Cell(UnsafeCell<usize>);
// SAFETY: the model proves that only one thread at a time accesses the data.
unsafe impl Sync for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn add(&self, n: usize) {
        // SAFETY: loom checks that no other thread accesses the data.
        self.0.with_mut(|cell| unsafe { *cell += n });
    }

    fn get(&self) -> usize {
        // SAFETY: loom checks that no other thread writes the data.
        self.0.with(|cell| unsafe { *cell })
    }
}

#[test]
fn threads_run_every_job_and_end_with_the_pool() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let cells = [Cell::new(), Cell::new()];
        for job in 1..=2 {
            pool.run(&|w| cells[w.index].add(job)).unwrap();
            // The caller may read the other thread's writes, because `run` has waited for that thread.
            assert_eq!(cells.iter().map(Cell::get).sum::<usize>(), job * (job + 1));
        }
    });
}

#[test]
fn bell_at_any_moment_neither_loses_nor_starts_a_job() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let (bell, cell) = (pool.bell(), Cell::new());
        let ringing = loom::thread::spawn(move || bell.ring());
        pool.run(&|w| {
            if w.index == 1 {
                cell.add(1);
            }
        })
        .unwrap();
        ringing.join().unwrap();
        assert_eq!(cell.get(), 1);
    });
}

#[test]
fn pool_without_a_job_closes() {
    loom::model(|| drop(Pool::new(3).unwrap()));
}

#[test]
fn barrier_holds_all_threads_and_runs_its_leader_alone() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let (cells, lead) = ([Cell::new(), Cell::new()], Cell::new());
        pool.run(&|w| {
            for part in 1..=2 {
                cells[w.index].add(1);
                w.barrier(|| lead.add(cells[0].get() + cells[1].get()));
                assert_eq!(lead.get(), part * (part + 1));
                w.barrier(|| ());
            }
        })
        .unwrap();
    });
}

#[test]
fn barrier_works_with_three_threads() {
    loom::model(|| {
        let mut pool = Pool::new(3).unwrap();
        let cells = [Cell::new(), Cell::new(), Cell::new()];
        pool.run(&|w| {
            cells[w.index].add(1);
            w.barrier(|| ());
            assert_eq!(cells[(w.index + 1) % 3].get(), 1);
        })
        .unwrap();
    });
}

#[test]
fn items_go_to_one_thread_each() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let (next, cells) = (AtomicUsize::new(0), [Cell::new(), Cell::new(), Cell::new()]);
        pool.run(&|_| Items::new(&next, cells.len(), 2).flatten().for_each(|i| cells[i].add(1))).unwrap();
        assert!(cells.iter().all(|cell| cell.get() == 1));
    });
}

/// One of two threads panics while the other is at the barrier or not yet there. Both leave the job, and the pool stays
/// usable.
#[test]
fn panic_ends_the_job_for_all_and_the_pool_stays_usable() {
    for panicking in 0..2 {
        loom::model(move || {
            let mut pool = Pool::new(2).unwrap();
            let (later, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let result = pool.run(&|w| {
                if w.index == panicking {
                    resume_unwind(Box::new("a bug"));
                }
                w.barrier(|| ());
                later.fetch_add(1, SeqCst);
            });
            assert_eq!(result, Err("a bug".to_string()));
            let result = pool.run(&|w| {
                w.barrier(|| ());
                after.fetch_add(1, SeqCst);
            });
            assert_eq!(result, Ok(()));
            assert_eq!((later.load(SeqCst), after.load(SeqCst)), (0, 2));
        });
    }
}

#[test]
fn panic_behind_a_barrier_releases_threads_that_have_not_passed_it() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let result = pool.run(&|w| {
            w.barrier(|| ());
            if w.index == 1 {
                resume_unwind(Box::new("a bug"));
            }
            w.barrier(|| ());
        });
        assert_eq!(result, Err("a bug".to_string()));
    });
}

#[test]
fn turns_serve_all_threads_one_at_a_time() {
    loom::model(|| {
        let turns = loom::sync::Arc::new(Turns::new(Cell::new()));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let turns = loom::sync::Arc::clone(&turns);
                loom::thread::spawn(move || turns.take().add(1))
            })
            .collect();
        turns.take().add(1);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(turns.take().get(), 3);
    });
}
