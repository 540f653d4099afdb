//! Every order in which the pool's threads can meet, up to LOOM_MAX_PREEMPTIONS forced switches, by loom:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test --release --locked --test pool_model
//! ```
//!
//! It fails where a thread would sleep for ever, or goes on before all have come.
#![cfg(loom)]
#![allow(dead_code)] // the pool's source is compiled once more, over loom's threads

#[path = "../src/pool.rs"]
mod pool;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
    pub use loom::sync::{Arc, Condvar, Mutex};
    pub use loom::thread::{Builder, JoinHandle};

    /// One look, then sleep: time does not pass in a model, and more looks are orders that one look has too.
    pub fn spin_until(done: impl Fn() -> bool) -> bool {
        done()
    }
}

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use pool::{Items, Pool};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::SeqCst;

/// What threads write without a lock: loom fails if two could touch it at once.
struct Cell(UnsafeCell<usize>);
// SAFETY: what the model is to prove.
unsafe impl Sync for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn add(&self, n: usize) {
        // SAFETY: loom checks that nobody else is here.
        self.0.with_mut(|cell| unsafe { *cell += n });
    }

    fn get(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|cell| unsafe { *cell })
    }
}

#[test]
fn threads_wake_for_every_job_and_leave_when_the_pool_goes() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let cells = [Cell::new(), Cell::new()];
        for job in 1..=2 {
            pool.run(&|w| cells[w.index].add(job));
            // The caller reads what the other thread wrote: `run` has waited for it.
            assert_eq!(cells.iter().map(Cell::get).sum::<usize>(), job * (job + 1));
        }
    });
}

#[test]
fn a_pool_that_never_ran_closes() {
    loom::model(|| drop(Pool::new(3).unwrap()));
}

#[test]
fn a_barrier_lets_nobody_through_early_and_its_leader_is_alone() {
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
        });
    });
}

#[test]
fn three_threads_meet() {
    loom::model(|| {
        let mut pool = Pool::new(3).unwrap();
        let cells = [Cell::new(), Cell::new(), Cell::new()];
        pool.run(&|w| {
            cells[w.index].add(1);
            w.barrier(|| ());
            assert_eq!(cells[(w.index + 1) % 3].get(), 1);
        });
    });
}

#[test]
fn the_work_counter_gives_each_item_to_one_thread() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let (next, cells) = (AtomicUsize::new(0), [Cell::new(), Cell::new(), Cell::new()]);
        pool.run(&|_| Items::new(&next, cells.len(), 2).flatten().for_each(|i| cells[i].add(1)));
        assert!(cells.iter().all(|cell| cell.get() == 1));
    });
}

/// As the executor does it: a part that fails still comes to its barrier, and its leader tells all to stop.
#[test]
fn a_part_that_panics_ends_the_job_for_all_and_the_pool_goes_on() {
    loom::model(|| {
        let mut pool = Pool::new(2).unwrap();
        let (failed, halted) = (AtomicBool::new(false), AtomicBool::new(false));
        let (later, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
        pool.run(&|w| {
            let part = || {
                if w.index == 1 {
                    resume_unwind(Box::new("a bug"))
                }
            };
            if catch_unwind(AssertUnwindSafe(part)).is_err() {
                failed.store(true, SeqCst);
            }
            w.barrier(|| halted.store(failed.load(SeqCst), SeqCst));
            if !halted.load(SeqCst) {
                later.fetch_add(1, SeqCst);
            }
        });
        pool.run(&|_| {
            after.fetch_add(1, SeqCst);
        });
        assert_eq!((later.load(SeqCst), after.load(SeqCst)), (0, 2));
    });
}
