//! Exports for a WebAssembly host (engine/backend/wasm/) besides those of ffi.rs. The host provides threads and
//! passes tensors in pieces. It can only stop a step through the shared memory.
use crate::ffi::{call, close_models, model, put};
use crate::words::Words;
use std::alloc::{Layout, alloc, dealloc};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The alignment of `compy_alloc`, enough for vectors and stacks.
const ALIGN: usize = 64;

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    /// Receives the message of a panic in UTF-8. The instance traps afterwards.
    #[link_name = "panicked"]
    fn host_panicked(words: *const u8, bytes: usize);
}

/// Allocates memory for messages and stacks; null if none is available.
#[unsafe(no_mangle)]
pub extern "C" fn compy_alloc(bytes: usize) -> *mut u8 {
    match Layout::from_size_align(bytes.max(1), ALIGN) {
        // SAFETY: the size is not 0.
        Ok(layout) => unsafe { alloc(layout) },
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// `compy_alloc` returned `at` for `bytes` bytes, and nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compy_dealloc(at: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) {
        // SAFETY: guaranteed by the caller.
        unsafe { dealloc(at, layout) };
    }
}

/// Call this first, once for all instances that share the memory.
#[unsafe(no_mangle)]
pub extern "C" fn compy_init() {
    std::panic::set_hook(Box::new(|panic| {
        let words = panic.to_string();
        // SAFETY: the message lives until the call returns.
        unsafe { host_panicked(words.as_ptr(), words.len()) };
    }));
}

macro_rules! exports {
    ($($(#[doc = $doc:literal])+ $name:ident = $body:expr;)*) => {$(
        $(#[doc = $doc])+
        /// # Safety
        /// As the exports of ffi.rs.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: u64,
            input: *const u8,
            input_len: usize,
            output: *mut u8,
            output_len: usize,
        ) -> i32 {
            // SAFETY: guaranteed by the caller.
            unsafe { call($body, handle, (input, input_len), (output, output_len)) }
        }
    )*};
}

exports! {
    /// Replaces `compy_model_open`. Input: tensors (u32), bytes of all packed matrices (u64).
    compy_model_reserve = |h, input, _| {
        let mut w = Words::new(input);
        model(h)?.reserve(w.size()?, w.u64()?)?;
        Ok(0)
    };
    /// Output: address (u32) of a byte that stops the running step when set to 1.
    compy_stop_flag = |h, _, out| put(out, &(model(h)?.stop_flag() as usize as u32).to_le_bytes());
}

type Job = Box<dyn FnOnce() + Send>;

/// The jobs that workers wait for.
struct Wanted {
    /// Threads that no worker runs yet.
    jobs: Vec<Job>,
    /// No more jobs will follow.
    over: bool,
}

static WANTED: Mutex<Wanted> = Mutex::new(Wanted { jobs: Vec::new(), over: false });
static CAME: Condvar = Condvar::new();

fn wanted() -> MutexGuard<'static, Wanted> {
    WANTED.lock().unwrap_or_else(|e| e.into_inner())
}

/// A worker calls this on its own stack. It runs one wanted thread after the other until `compy_end`.
#[unsafe(no_mangle)]
pub extern "C" fn compy_threads() {
    let mut wanted = wanted();
    while !wanted.over {
        wanted = match wanted.jobs.pop() {
            Some(job) => {
                drop(wanted);
                job();
                self::wanted()
            }
            None => CAME.wait(wanted).unwrap_or_else(|e| e.into_inner()),
        };
    }
}

/// Sends the workers away after their threads have ended. No export may be called afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn compy_end() {
    close_models();
    wanted().over = true;
    CAME.notify_all();
}

/// As `std::thread::Builder`. The host has as many workers as there are threads to spawn.
pub struct Builder(());

impl Builder {
    #[expect(clippy::new_without_default, reason = "std's has none either")]
    pub fn new() -> Self {
        Self(())
    }

    /// Ignored: the host names its workers.
    pub fn name(self, _: String) -> Self {
        self
    }

    /// # Errors
    /// Never; the signature is that of std.
    pub fn spawn(self, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let handle = JoinHandle(Arc::clone(&ended));
        let job = move || {
            run();
            *ended.0.lock().unwrap_or_else(|e| e.into_inner()) = true;
            ended.1.notify_all();
        };
        wanted().jobs.push(Box::new(job));
        CAME.notify_one();
        Ok(handle)
    }
}

/// A thread that can be joined.
pub struct JoinHandle(Arc<(Mutex<bool>, Condvar)>);

impl JoinHandle {
    /// # Errors
    /// Never: a panic ends all threads here.
    pub fn join(self) -> std::thread::Result<()> {
        let mut ended = self.0.0.lock().unwrap_or_else(|e| e.into_inner());
        while !*ended {
            ended = self.0.1.wait(ended).unwrap_or_else(|e| e.into_inner());
        }
        Ok(())
    }
}
