//! A model behind a handle: its file, its weights, its program and the threads that run it.
use crate::bail;
use crate::cache;
use crate::clock::Instant;
use crate::cores;
use crate::error::{Error, Result};
use crate::executor::{Executor, Progress};
use crate::limits::measure;
use crate::masks::Masks;
use crate::pool::{Bell, Pool, Worker};
use crate::program::Program;
use crate::simd::Isa;
use crate::step::Step;
use crate::turns::{Turn, Turns};
use crate::weights::{Piece, Source, Weights};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::Duration;

/// Default of `Model::slice`. A decode step of a small model takes about this time, so two models that take turns get
/// about equal time.
const SLICE: Duration = Duration::from_millis(50);

/// A pool of threads that models use in turns, and a bell that wakes the threads before a model has its turn.
struct SharedPool {
    turns: Turns<Pool>,
    bell: Bell,
    threads: usize,
    /// The processors on which the threads run; empty for all.
    processors: Vec<usize>,
}

impl SharedPool {
    /// Waits for a turn. The calling thread, which computes too, runs on the pool's processors from then on.
    fn take(&self) -> Turn<'_, Pool> {
        cores::stay_on(&self.processors);
        self.turns.take()
    }
}

/// The pools of this process.
static POOLS: Mutex<Vec<Weak<SharedPool>>> = Mutex::new(Vec::new());

/// Returns the pool of `threads` threads on these processors, which all models with this choice share. They take turns
/// step by step, because more threads than cores would slow each other down. The pool lives as long as any of these
/// models.
fn shared_pool(threads: usize, processors: &[usize]) -> std::io::Result<Arc<SharedPool>> {
    let mut pools = POOLS.lock().unwrap_or_else(|e| e.into_inner());
    pools.retain(|pool| pool.strong_count() > 0);
    let fits = |pool: &Arc<SharedPool>| pool.threads == threads && pool.processors == processors;
    if let Some(pool) = pools.iter().find_map(|pool| pool.upgrade().filter(fits)) {
        return Ok(pool);
    }
    let mut pool = Pool::new(threads)?;
    // Thread 0 is the caller of each job, and this caller may be a thread that does other work.
    let stay = |worker: &Worker| {
        if worker.index > 0 {
            cores::stay_on(processors);
        }
    };
    pool.run(&stay).map_err(std::io::Error::other)?;
    let bell = pool.bell();
    let turns = Turns::new(pool);
    let pool = Arc::new(SharedPool { bell, turns, threads, processors: processors.to_vec() });
    pools.push(Arc::downgrade(&pool));
    Ok(pool)
}

fn open_file(path: &str) -> Result<File> {
    File::open(path).map_err(|e| Error::new(format!("Cannot open {path}: {e}")))
}

pub struct Model {
    pub isa: Isa,
    pub threads: usize,
    /// A step over whole texts pauses after this time if another model waits for the threads.
    pub slice: Duration,
    stop: AtomicBool,
    masks: Masks,
    pool: Arc<SharedPool>,
    state: Mutex<State>,
}

struct State {
    file: Option<File>,
    weights: Option<Weights>,
    executor: Option<Executor>,
}

impl Model {
    /// The model's threads run on `processors`, or on all if there are none.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub fn new(isa: Isa, threads: usize, processors: &[usize]) -> Result<Self> {
        if !(1..=1024).contains(&threads) {
            bail!("A model must have 1 to 1024 threads (got {threads})");
        }
        let pool =
            shared_pool(threads, processors).map_err(|e| Error::new(format!("Cannot start {threads} threads: {e}")))?;
        let (stop, masks) = (AtomicBool::new(false), Masks::default());
        let state = State { file: None, weights: None, executor: None };
        Ok(Self { isa, threads, slice: SLICE, stop, masks, pool, state: Mutex::new(state) })
    }

    /// Returns the model's state, locked. Only one call at a time may use it.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::WouldBlock) => Err(Error::new("The model is busy with another call")),
            Err(TryLockError::Poisoned(_)) => Err(Error::new("The model failed in an earlier call")),
        }
    }

    /// Opens the file and reserves memory for the packed weights.
    ///
    /// # Errors
    /// The file or the memory is not available.
    pub fn open(&self, path: &str, tensors: usize, bytes: u64) -> Result<()> {
        let mut state = self.state()?;
        let file = open_file(path)?;
        (state.file, state.executor) = (Some(file), None);
        state.weights = Some(Weights::new(tensors, bytes)?);
        Ok(())
    }

    /// Reserves memory for packed weights that arrive in pieces instead of from a file.
    ///
    /// # Errors
    /// The memory is not available.
    pub fn reserve(&self, tensors: usize, bytes: u64) -> Result<()> {
        let mut state = self.state()?;
        (state.file, state.executor) = (None, None);
        state.weights = Some(Weights::new(tensors, bytes)?);
        Ok(())
    }

    /// Loads the following tensors from another file of the model.
    ///
    /// # Errors
    /// The file does not exist, or no model file is open.
    pub fn read_from(&self, path: &str) -> Result<()> {
        let mut state = self.state()?;
        if state.file.is_none() {
            bail!("No model file is open");
        }
        state.file = Some(open_file(path)?);
        Ok(())
    }

    /// Sets the factors by which a matrix's rows are multiplied when the matrix is loaded.
    ///
    /// # Errors
    /// As `Weights::set_factors`; or no file is open and no memory is reserved.
    pub fn set_factors(&self, index: usize, factors: Vec<f32>) -> Result<()> {
        let mut state = self.state()?;
        let Some(weights) = &mut state.weights else { bail!("No memory is reserved for weights") };
        weights.set_factors(index, factors)
    }

    /// Loads a tensor from the open file.
    ///
    /// # Errors
    /// As `Weights::load_matrix` and `load_vector`; or no file is open.
    pub fn load(&self, index: usize, source: &Source, vector: bool) -> Result<()> {
        let mut state = self.state()?;
        let State { file, weights, executor } = &mut *state;
        let (Some(file), Some(weights)) = (file, weights) else { bail!("No model file is open") };
        // The executor's program was checked against the previous weights, so it is no longer valid.
        *executor = None;
        if vector {
            return weights.load_vector(index, file, source);
        }
        weights.load_matrix(index, file, source, self.isa, &mut self.pool.take())
    }

    /// Loads some rows of a tensor from the bytes in `piece`, from row `first` on. All earlier rows are already loaded.
    ///
    /// # Errors
    /// As `Weights::load_rows` and `load_vector`; or no memory is reserved.
    pub fn load_piece(&self, index: usize, source: &Source, vector: bool, first: usize, piece: &Piece) -> Result<()> {
        let mut state = self.state()?;
        let State { weights, executor, .. } = &mut *state;
        let Some(weights) = weights else { bail!("No memory is reserved for weights") };
        *executor = None;
        if vector {
            return weights.load_vector(index, piece, source);
        }
        weights.load_rows(index, first, piece, source, self.isa, &mut self.pool.take())
    }

    /// Decodes a plan and allocates the memory in which its steps run.
    ///
    /// # Errors
    /// The plan is malformed or does not fit the weights, or memory is not available.
    pub fn compile(&self, plan: &[u8]) -> Result<()> {
        let mut state = self.state()?;
        let Some(weights) = &state.weights else { bail!("No model file is open") };
        let program = Program::decode(plan, weights)?;
        state.executor = Some(Executor::new(program, self.threads)?);
        Ok(())
    }

    /// Runs a step. Returns the number of bytes written to `output`, or None if the step was stopped.
    ///
    /// # Errors
    /// The step does not fit the program, or a kernel panicked.
    pub fn step(&self, input: &[u8], output: &mut [u8]) -> Result<Option<usize>> {
        let mut state = self.state()?;
        let State { weights, executor, .. } = &mut *state;
        let (Some(weights), Some(executor)) = (weights, executor) else { bail!("No plan is compiled") };
        let step = Step::decode(input, executor.program(), &self.masks)?;
        let mut from = executor.begin(&step);
        loop {
            let mut pool = self.pool.take();
            let began = Instant::now();
            let pause = || began.elapsed() > self.slice && self.pool.turns.is_wanted();
            let ends = (&self.masks, &self.stop, &pause as &(dyn Fn() -> bool + Sync));
            match executor.run(weights, self.isa, &mut pool, (&step, from), ends, output)? {
                Progress::Done => return Ok(Some(4 * step.output_words)),
                Progress::Stopped => return Ok(None),
                Progress::Paused(at) => from = at,
            }
        }
    }

    /// Copies KV blocks and recurrent states to `output`. Returns the number of bytes written.
    ///
    /// # Errors
    /// As `cache::decode` and `Executor::read_cache`.
    pub fn read_cache(&self, input: &[u8], output: &mut [u8]) -> Result<usize> {
        let mut state = self.state()?;
        let Some(executor) = &mut state.executor else { bail!("No plan is compiled") };
        let (parts, rest) = cache::decode(input, executor.program())?;
        if !rest.is_empty() {
            bail!("The message has {} bytes behind its last word", rest.len());
        }
        executor.read_cache(&parts, output)
    }

    /// Overwrites KV blocks and recurrent states with the bytes in `input`.
    ///
    /// # Errors
    /// As `cache::decode` and `Executor::write_cache`.
    pub fn write_cache(&self, input: &[u8]) -> Result<()> {
        let mut state = self.state()?;
        let Some(executor) = &mut state.executor else { bail!("No plan is compiled") };
        let (parts, bytes) = cache::decode(input, executor.program())?;
        executor.write_cache(&parts, bytes)
    }

    /// Returns the nanoseconds that each op of the plan has taken since the last call.
    ///
    /// # Errors
    /// No plan is compiled.
    pub fn take_times(&self) -> Result<Vec<u64>> {
        match &self.state()?.executor {
            Some(executor) => Ok(executor.take_times()),
            None => bail!("No plan is compiled"),
        }
    }

    /// Measures the limits of this machine with `threads` threads, as `limits::measure` does.
    ///
    /// # Errors
    /// As `limits::measure`; or the model has another number of threads.
    pub fn measure(&self, threads: usize) -> Result<[f64; 3]> {
        if threads != self.threads {
            bail!("The model has {} threads (got {threads})", self.threads);
        }
        measure(self.isa, &mut self.pool.take())
    }

    /// Prepares the next step. Clears the stop flag, so that a late stop of the previous step does not end this step.
    /// Also announces the number of masks and the words of each mask.
    ///
    /// # Errors
    /// As `Masks::expect`.
    pub fn prepare(&self, step: u32, masks: usize, words: usize) -> Result<()> {
        self.pool.bell.ring();
        self.stop.store(false, SeqCst);
        self.masks.expect(step, masks, words)
    }

    /// Hands mask `index` to the running step.
    ///
    /// # Errors
    /// As `Masks::give`.
    pub fn give_mask(&self, step: u32, index: usize, mask: &[[u8; 4]]) -> Result<()> {
        self.masks.give(step, index, mask)
    }

    /// Returns the address of the flag that `stop` sets.
    pub fn stop_flag(&self) -> *mut bool {
        self.stop.as_ptr()
    }

    /// Asks the running step to end at its next barrier, or while it waits for a mask.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.masks.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_with_the_same_thread_count_share_a_pool() {
        let new = |threads| Model::new(Isa::available()[0], threads, &[]).expect("threads");
        let (one, other, wide) = (new(7), new(7), new(5));
        assert!(Arc::ptr_eq(&one.pool, &other.pool) && !Arc::ptr_eq(&one.pool, &wide.pool));
        let pool = Arc::downgrade(&one.pool);
        drop((one, wide));
        assert!(Arc::ptr_eq(&new(7).pool, &other.pool));
        drop(other);
        assert!(pool.upgrade().is_none());
    }
}
