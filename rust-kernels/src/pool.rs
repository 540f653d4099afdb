//! A fixed pool of threads that run a job together, with barriers between its parts.
use super::sync::{
    Arc, AtomicBool, AtomicU32, AtomicUsize, Builder, Condvar, JoinHandle, Mutex, MutexGuard, spin_until,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::SeqCst;

/// A value that has two cache lines for itself, because cores fetch lines in pairs. Writes to neighbouring values then
/// do not evict it from the caches of its readers.
#[derive(Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

/// A gate on which threads wait until another thread opens it. Waiting threads first spin, then sleep. `generation`
/// counts the openings.
#[derive(Default)]
#[repr(align(128))]
struct Gate {
    generation: AtomicU32,
    sleepers: AtomicUsize,
    /// How often sleeping threads were told to spin again.
    stirs: Mutex<u32>,
    wake: Condvar,
}

impl Gate {
    fn open(&self) {
        self.generation.fetch_add(1, SeqCst);
        // `fetch_add` instead of `load`: either this sees the latest sleeper, or that sleeper sees the new generation.
        if self.sleepers.fetch_add(0, SeqCst) > 0 {
            // Taking the lock makes sure that the sleeper's last check of the generation was before this wake-up.
            drop(self.stirs());
            self.wake.notify_all();
        }
    }

    /// Makes sleeping threads spin once more, because the gate will open soon.
    fn stir(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            let mut stirs = self.stirs();
            *stirs = stirs.wrapping_add(1);
            drop(stirs);
            self.wake.notify_all();
        }
    }

    /// Returns as soon as the generation differs from `seen`.
    fn wait(&self, seen: u32) {
        let has_come = || self.generation.load(SeqCst) != seen;
        while !spin_until(has_come) {
            self.sleepers.fetch_add(1, SeqCst);
            let mut stirs = self.stirs();
            let before = *stirs;
            while !has_come() && *stirs == before {
                stirs = self.wake.wait(stirs).unwrap_or_else(|e| e.into_inner());
            }
            drop(stirs);
            self.sleepers.fetch_sub(1, SeqCst);
        }
    }

    fn stirs(&self) -> MutexGuard<'_, u32> {
        self.stirs.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Divisor for the length of a tapering run: a run is the remaining work divided by this number of runs per thread.
const RUNS_PER_THREAD: usize = 3;

/// A job: the closure that each thread calls once, with its `Worker`.
type Job = *const (dyn Fn(&Worker) + Sync);

struct Shared {
    threads: usize,
    start: Gate,
    job: Mutex<Option<SendJob>>,
    closing: AtomicBool,
    /// Number of threads that have reached the job's next barrier.
    arrived: Apart<AtomicUsize>,
    barrier: Gate,
    /// Whether a thread has panicked. The others then leave the job at their next barrier.
    poisoned: AtomicBool,
    /// The payload of the first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Number of threads that have left the job.
    left: AtomicUsize,
    all_left: Gate,
}

/// A job's pointer, which may be sent to threads. They follow it only while `Pool::run`, which borrows the closure,
/// waits for them.
#[derive(Clone, Copy)]
struct SendJob(Job);
unsafe impl Send for SendJob {}

/// Panic payload that takes a thread out of a job because another thread has panicked.
struct Poisoned;

/// A thread as its job sees it: the thread's index and its pool.
pub struct Worker<'a> {
    pub index: usize,
    shared: &'a Shared,
}

impl Worker<'_> {
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Waits until every thread has reached this barrier. The last thread runs `leader` before the others continue. If
    /// another thread panicked, it never arrives, so this call unwinds out of the job.
    pub fn barrier(&self, leader: impl FnOnce()) {
        let shared = self.shared;
        let seen = shared.barrier.generation.load(SeqCst);
        // This check follows the load of the generation: a thread that saw the generation after a panic also sees the
        // panic.
        self.leave_if_poisoned();
        if shared.arrived.0.fetch_add(1, SeqCst) + 1 == shared.threads {
            shared.arrived.0.store(0, SeqCst);
            leader();
            shared.barrier.open();
        } else {
            shared.barrier.wait(seen);
            self.leave_if_poisoned();
        }
    }

    fn leave_if_poisoned(&self) {
        if self.shared.poisoned.load(SeqCst) {
            resume_unwind(Box::new(Poisoned));
        }
    }
}

/// Wakes a pool's threads as early as possible before a job, because waking a thread takes longer than many ops.
pub struct Bell(Arc<Shared>);

impl Bell {
    /// Wakes the threads and returns at once. This is harmless if a job is running or none follows.
    pub fn ring(&self) {
        self.0.start.stir();
    }
}

/// A pool of threads. The caller of `run` is thread 0; the pool starts the other threads.
pub struct Pool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle>,
}

impl Pool {
    /// # Errors
    /// The system cannot start a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            threads,
            start: Gate::default(),
            job: Mutex::new(None),
            closing: AtomicBool::new(false),
            arrived: Apart(AtomicUsize::new(0)),
            barrier: Gate::default(),
            poisoned: AtomicBool::new(false),
            panic: Mutex::new(None),
            left: AtomicUsize::new(0),
            all_left: Gate::default(),
        });
        let mut pool = Self { shared, handles: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = Builder::new().name(format!("compy-{index}"));
            pool.handles.push(builder.spawn(move || Self::work(&shared, index))?);
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Returns a bell that wakes this pool's threads before a job.
    pub fn bell(&self) -> Bell {
        Bell(Arc::clone(&self.shared))
    }

    /// Runs `job` on every thread and returns when all threads have left it. A panic on one thread ends the job on
    /// the others at their next barrier. The pool stays usable.
    ///
    /// # Errors
    /// The job panicked; the error is the panic's message.
    pub fn run(&mut self, job: &(dyn Fn(&Worker) + Sync)) -> Result<(), String> {
        let shared = &*self.shared;
        // SAFETY: this only erases the lifetime. A thread does not follow the pointer after it has left the job, and
        // this function returns after all have left.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(&Worker) + Sync), Job>(job) };
        // No thread is in a job now, so no thread reads these counters.
        shared.arrived.0.store(0, SeqCst);
        shared.left.store(0, SeqCst);
        shared.poisoned.store(false, SeqCst);
        let seen = shared.all_left.generation.load(SeqCst);
        *shared.job.lock().unwrap_or_else(|e| e.into_inner()) = Some(SendJob(job));
        shared.start.open();
        Self::run_on(shared, 0, SendJob(job));
        shared.all_left.wait(seen);
        match shared.panic.lock().unwrap_or_else(|e| e.into_inner()).take() {
            None => Ok(()),
            Some(panic) => Err(message_of(&*panic)),
        }
    }

    fn run_on(shared: &Shared, index: usize, job: SendJob) {
        let worker = Worker { index, shared };
        // SAFETY: `run` has not returned yet, so the closure that it borrows exists.
        let work = AssertUnwindSafe(|| unsafe { (*job.0)(&worker) });
        if let Err(panic) = catch_unwind(work)
            && !panic.is::<Poisoned>()
        {
            shared.panic.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(panic);
            shared.poisoned.store(true, SeqCst);
            // Without this, threads at the barrier would wait forever for the thread that panicked.
            shared.barrier.open();
        }
        if shared.left.fetch_add(1, SeqCst) + 1 == shared.threads {
            shared.all_left.open();
        }
    }

    fn work(shared: &Shared, index: usize) {
        let mut seen = 0;
        loop {
            shared.start.wait(seen);
            seen += 1;
            if shared.closing.load(SeqCst) {
                return;
            }
            let job = *shared.job.lock().unwrap_or_else(|e| e.into_inner());
            if let Some(job) = job {
                Self::run_on(shared, index, job);
            }
        }
    }
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_string()
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closing.store(true, SeqCst);
        self.shared.start.open();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

/// Hands out items 0..total in runs (ranges of items) to the threads that ask.
pub struct Items<'a> {
    next: &'a AtomicUsize,
    total: usize,
    /// Length of a run: a multiple of the first number, and at most the second.
    run: [usize; 2],
    /// Divisor of the remaining items; the result is the maximum length of the next run.
    shares: usize,
    /// Whether to hand out no more items for now.
    halt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Items<'a> {
    /// Hands out runs of `grain` items. `next` must be 0 before the first thread asks.
    pub fn new(next: &'a AtomicUsize, total: usize, grain: usize) -> Self {
        Self { next, total, run: [grain.max(1); 2], shares: 1, halt: None }
    }

    /// Hands out runs of at most `most` items, in multiples of `unit`, that get shorter towards the end. So threads
    /// finish together, and a thread that loses its core for a while does not delay the others.
    pub fn tapering(next: &'a AtomicUsize, total: usize, [unit, most]: [usize; 2], threads: usize) -> Self {
        Self { next, total, run: [unit, most], shares: RUNS_PER_THREAD * threads, halt: None }
    }

    /// Hands out no more items as soon as `halt` returns true. Another `Items` with the same counter hands out the rest.
    pub fn until(self, halt: Option<&'a (dyn Fn() -> bool + Sync)>) -> Self {
        Self { halt, ..self }
    }
}

impl Iterator for Items<'_> {
    type Item = std::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.halt.is_some_and(|halt| halt()) {
            return None;
        }
        let [unit, most] = self.run;
        let mut start = self.next.load(SeqCst);
        while start < self.total {
            let left = self.total - start;
            let run = ((left / self.shares).min(most) / unit * unit).max(unit).min(left);
            match self.next.compare_exchange_weak(start, start + run, SeqCst, SeqCst) {
                Ok(_) => return Some(start..start + run),
                Err(now) => start = now,
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::sync::SPIN;
    use super::*;

    fn run(pool: &mut Pool, job: &(dyn Fn(&Worker) + Sync)) {
        pool.run(job).expect("the job does not panic");
    }

    #[test]
    fn run_calls_every_job_once_on_every_thread() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads).unwrap();
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..300 {
                run(&mut pool, &|w| {
                    counts[w.index].fetch_add(1, SeqCst);
                });
            }
            assert!(counts.iter().all(|c| c.load(SeqCst) == 300));
        }
    }

    #[test]
    fn barrier_separates_the_parts_and_runs_one_leader() {
        let mut pool = Pool::new(4).unwrap();
        let (before, leaders, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        run(&mut pool, &|w| {
            for part in 1..=200 {
                before.fetch_add(1, SeqCst);
                w.barrier(|| {
                    leaders.fetch_add(1, SeqCst);
                });
                wrong.fetch_add(usize::from(before.load(SeqCst) != 4 * part), SeqCst);
                w.barrier(|| ());
            }
        });
        assert_eq!((leaders.load(SeqCst), wrong.load(SeqCst)), (200, 0));
    }

    #[test]
    fn run_wakes_sleeping_threads() {
        let mut pool = Pool::new(3).unwrap();
        let count = AtomicUsize::new(0);
        for _ in 0..5 {
            std::thread::sleep(SPIN * 20);
            run(&mut pool, &|w| {
                if w.index == 1 {
                    std::thread::sleep(SPIN * 20);
                }
                count.fetch_add(1, SeqCst);
            });
        }
        assert_eq!(count.load(SeqCst), 15);
    }

    #[test]
    fn bell_starts_no_job_and_may_outlive_the_pool() {
        let mut pool = Pool::new(3).unwrap();
        let (bell, count) = (pool.bell(), AtomicUsize::new(0));
        for _ in 0..5 {
            std::thread::sleep(SPIN * 5);
            bell.ring();
            std::thread::sleep(SPIN * 5);
            run(&mut pool, &|_| {
                count.fetch_add(1, SeqCst);
            });
        }
        drop(pool);
        bell.ring();
        assert_eq!(count.load(SeqCst), 15);
    }

    #[test]
    fn run_ends_the_job_on_all_threads_when_one_panics_and_the_pool_stays_usable() {
        for (threads, index) in [(1, 0), (2, 0), (2, 1), (5, 0), (5, 3)] {
            let mut pool = Pool::new(threads).unwrap();
            for part in 0..4 {
                let (reached, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let result = pool.run(&|w| {
                    for i in 0..4 {
                        assert!((w.index, i) != (index, part), "thread {index} in part {part}");
                        w.barrier(|| ());
                        reached.fetch_max(i + 1, SeqCst);
                    }
                });
                assert_eq!(result, Err(format!("thread {index} in part {part}")));
                assert_eq!(reached.load(SeqCst), part);
                run(&mut pool, &|w| {
                    w.barrier(|| ());
                    after.fetch_add(1, SeqCst);
                });
                assert_eq!(after.load(SeqCst), threads);
            }
        }
    }

    #[test]
    fn run_ends_the_job_when_a_leader_panics() {
        let mut pool = Pool::new(3).unwrap();
        let after = AtomicUsize::new(0);
        let result = pool.run(&|w| {
            w.barrier(|| panic!("a leader"));
            after.fetch_add(1, SeqCst);
        });
        assert_eq!((result, after.load(SeqCst)), (Err("a leader".into()), 0));
    }

    #[test]
    fn items_are_handed_out_once_each() {
        let mut pool = Pool::new(4).unwrap();
        for tapering in [false, true] {
            let next = AtomicUsize::new(0);
            let seen: Vec<AtomicUsize> = (0..1001).map(|_| AtomicUsize::new(0)).collect();
            run(&mut pool, &|worker| {
                let items = if tapering {
                    Items::tapering(&next, seen.len(), [3, 48], worker.threads())
                } else {
                    Items::new(&next, seen.len(), 7)
                };
                for i in items.flatten() {
                    seen[i].fetch_add(1, SeqCst);
                }
            });
            assert!(seen.iter().all(|c| c.load(SeqCst) == 1));
        }
    }

    #[test]
    fn items_that_halt_leave_the_rest_to_the_next_items_with_the_same_counter() {
        let (next, halts) = (AtomicUsize::new(0), AtomicBool::new(false));
        let halt = || halts.load(SeqCst);
        let mut items = Items::new(&next, 10, 4).until(Some(&halt));
        assert_eq!(items.next(), Some(0..4));
        halts.store(true, SeqCst);
        assert_eq!(items.next(), None);
        assert_eq!(Items::new(&next, 10, 4).collect::<Vec<_>>(), [4..8, 8..10]);
    }

    #[test]
    fn tapering_runs_are_multiples_of_a_unit_and_get_shorter() {
        let next = AtomicUsize::new(0);
        let runs: Vec<usize> = Items::tapering(&next, 100, [3, 12], 2).map(|run| run.len()).collect();
        assert_eq!(runs, [12, 12, 12, 9, 9, 6, 6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
    }
}
