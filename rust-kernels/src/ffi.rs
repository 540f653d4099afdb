//! The functions that Deno calls. Every export takes a handle, input bytes and output bytes. It returns the number of
//! bytes written. On an error it writes a UTF-8 message of n bytes and returns -1 - n.
//!
//! ffi/bindings.ts is generated from `EXPORTS`: `cargo run --bin bindings`.
use crate::bail;
use crate::cores::{MAX_PROCESSORS, Node};
use crate::error::Result;
use crate::kernels::gemm::whole_tokens;
use crate::memory;
use crate::model::Model;
use crate::simd::Isa;
use crate::weights::{Piece, Source, dequantize, packed_bytes};
use crate::words::Words;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Bump this when an export's meaning or a message's layout changes.
pub const ABI_VERSION: u32 = 18;

/// An export's name, whether Deno calls it on another thread, and its documentation.
pub struct Export {
    pub name: &'static str,
    pub nonblocking: bool,
    pub doc: &'static str,
}

macro_rules! exports {
    ($($(#[doc = $doc:literal])+ $mode:ident $name:ident = $body:expr;)*) => {
        $(
            /// # Safety
            /// `input` and `output` point at as many bytes as their lengths say (null if 0), and stay valid until the
            /// call returns.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                handle: u64,
                input: *const u8,
                input_len: usize,
                output: *mut u8,
                output_len: usize,
            ) -> i32 {
                unsafe { call($body, handle, (input, input_len), (output, output_len)) }
            }
        )*
        /// All exports, in order.
        pub const EXPORTS: &[Export] = &[$(Export {
            name: stringify!($name),
            nonblocking: exports!(@$mode),
            doc: concat!($($doc, "\n"),+),
        }),*];
    };
    (@blocking) => { false };
    (@nonblocking) => { true };
}

exports! {
    /// Output: the ABI version (u32).
    blocking compy_abi_version = |_, _, out| put(out, &ABI_VERSION.to_le_bytes());
    /// Output: the names of the instruction sets that this CPU can run, best first, separated by commas.
    blocking compy_instruction_sets = |_, _, out| {
        put(out, Isa::available().iter().map(|isa| isa.name()).collect::<Vec<_>>().join(",").as_bytes())
    };
    /// Output: physical cores that this process may run on (u32).
    blocking compy_cores = |_, _, out| put(out, &(crate::cores::physical() as u32).to_le_bytes());
    /// Output: for each NUMA node that this process may use, its physical cores, its processors and their numbers (u32
    /// each).
    blocking compy_nodes = |_, _, out| {
        let words = crate::cores::nodes().into_iter().flat_map(|Node { cores, processors }| {
            [cores, processors.len()].into_iter().chain(processors)
        });
        put(out, &words.flat_map(|word| (word as u32).to_le_bytes()).collect::<Vec<_>>())
    };
    /// Input: threads (u32), the processors on which they run (u32 each, after their count; none for all), name of the
    /// instruction set (the best one where empty). Output: a handle (u64).
    blocking compy_model_new = model_new;
    /// Output: name of the instruction set in use.
    blocking compy_model_isa = |h, _, out| put(out, model(h)?.isa.name().as_bytes());
    /// Output: a row count R (u32). A step's matrix products take R rows as fast as slightly fewer rows.
    blocking compy_model_whole_rows = |h, _, out| put(out, &(whole_tokens(model(h)?.isa) as u32).to_le_bytes());
    /// Input: type, columns, rows (u32 each). Output: bytes of the packed matrix (u64).
    blocking compy_packed_bytes = |h, input, out| {
        let mut w = Words::new(input);
        let source = Source { format: w.u32()?, columns: w.size()?, rows: w.size()?, offset: 0 };
        put(out, &(packed_bytes(&source, model(h)?.isa)? as u64).to_le_bytes())
    };
    /// Input: tensors (u32), bytes of all packed matrices (u64), the file's path.
    blocking compy_model_open = |h, input, _| {
        let mut w = Words::new(input);
        let (tensors, bytes) = (w.size()?, w.u64()?);
        model(h)?.open(text(&input[12..])?, tensors, bytes)?;
        Ok(0)
    };
    /// Input: a path. The following tensors are loaded from that file, until another file is named.
    blocking compy_model_file = |h, input, _| {
        model(h)?.read_from(text(input)?)?;
        Ok(0)
    };
    /// Call this before a matrix is loaded. Input: its index (u32), then factors (f32 each). Its rows are split into
    /// as many equal parts, and each part is multiplied by its factor.
    blocking compy_tensor_factors = |h, input, _| {
        let mut w = Words::new(input);
        let index = w.size()?;
        model(h)?.set_factors(index, w.f32s((input.len() - 4) / 4)?)?;
        Ok(0)
    };
    /// Input: index, kind (0 matrix, 1 vector), type, columns, rows (u32 each), byte offset (u64).
    nonblocking compy_tensor_load = |h, input, _| {
        let mut w = Words::new(input);
        let (index, vector) = (w.size()?, w.u32()? == 1);
        let source = Source { format: w.u32()?, columns: w.size()?, rows: w.size()?, offset: w.u64()? };
        model(h)?.load(index, &source, vector)?;
        Ok(0)
    };
    /// Loads some rows of a tensor that is not in a file, in order. Input: index, kind (0 matrix, 1 vector), type,
    /// columns, rows, the first row (u32 each). The rows follow as they would be in a file.
    nonblocking compy_tensor_rows = |h, input, _| {
        let mut w = Words::new(input);
        let (index, vector) = (w.size()?, w.u32()? == 1);
        let source = Source { format: w.u32()?, columns: w.size()?, rows: w.size()?, offset: 0 };
        let first = w.size()?;
        model(h)?.load_piece(index, &source, vector, first, &Piece(&input[24..]))?;
        Ok(0)
    };
    /// Input: a tensor type (u32), then blocks of this type. Output: their values (f32 each).
    nonblocking compy_dequantize = |_, input, out| {
        let values = dequantize(Words::new(input).u32()?, &input[4..])?;
        put(out, values.into_iter().map(f32::to_le_bytes).collect::<Vec<_>>().as_flattened())
    };
    /// Input: an encoded plan.
    nonblocking compy_plan_compile = |h, input, _| {
        model(h)?.compile(input)?;
        Ok(0)
    };
    /// Input: an encoded step. Output: its answers, or nothing if the step was stopped.
    nonblocking compy_step = |h, input, out| Ok(model(h)?.step(input, out)?.unwrap_or(0));
    /// Call this before each step. Input: the step's number, how many masks will follow while it runs, and words per
    /// mask (u32 each).
    blocking compy_step_prepare = |h, input, _| {
        let mut w = Words::new(input);
        model(h)?.prepare(w.u32()?, w.size()?, w.size()?)?;
        Ok(0)
    };
    /// Hands over a mask. Input: the number of its step, the mask's index (u32 each), then one bit per token.
    blocking compy_mask = |h, input, _| {
        let mut w = Words::new(input);
        let (step, index) = (w.u32()?, w.size()?);
        model(h)?.give_mask(step, index, w.take(input.len().saturating_sub(8) / 4)?)?;
        Ok(0)
    };
    /// Asks the running step to stop.
    blocking compy_stop = |h, _, _| {
        model(h)?.stop();
        Ok(0)
    };
    /// Copies KV blocks and recurrent states out of the model. Input: the numbers of blocks and slots, a group and a
    /// block for each block, then the slots (u32 each). Output: keys and values of each block, floats of each slot.
    nonblocking compy_cache_read = |h, input, out| model(h)?.read_cache(input, out);
    /// Copies KV blocks and recurrent states into the model. Input: as for compy_cache_read, then its output.
    nonblocking compy_cache_write = |h, input, _| {
        model(h)?.write_cache(input)?;
        Ok(0)
    };
    /// Output: nanoseconds spent in each op of the plan since the last call (u64 each).
    nonblocking compy_profile = |h, _, out| {
        put(out, &model(h)?.take_times()?.iter().flat_map(|t| t.to_le_bytes()).collect::<Vec<_>>())
    };
    /// Measures this machine. Input: threads (u32). Output: read bandwidth in GB/s, int8 and f32 peaks in 10^9 operations
    /// a second (f64 each).
    nonblocking compy_limits = |h, input, out| {
        let figures = model(h)?.measure(Words::new(input).size()?)?;
        put(out, &figures.map(f64::to_le_bytes).concat())
    };
    /// Frees the model's memory and invalidates the handle.
    blocking compy_model_free = |h, _, _| {
        model(h)?;
        // A running step owns a reference to the model and frees it at its end.
        handles()[h as u32 as usize].1 = None;
        memory::trim();
        Ok(0)
    };
}

type Slot = (u32, Option<Arc<Model>>);
static HANDLES: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

fn handles() -> std::sync::MutexGuard<'static, Vec<Slot>> {
    HANDLES.lock().unwrap_or_else(|e| e.into_inner())
}

/// The model of a handle: the low half is the slot's index, the high half its generation.
pub(crate) fn model(handle: u64) -> Result<Arc<Model>> {
    match handles().get(handle as u32 as usize) {
        Some((generation, Some(model))) if u64::from(*generation) == handle >> 32 => Ok(Arc::clone(model)),
        _ => bail!("{handle:#x} is not the handle of an open model"),
    }
}

/// Frees all models.
#[cfg(target_arch = "wasm32")]
pub(crate) fn close_models() {
    handles().clear();
}

fn model_new(_: u64, input: &[u8], out: &mut [u8]) -> Result<usize> {
    memory::map_large_blocks();
    let mut w = Words::new(input);
    let (threads, count) = (w.size()?, w.size()?);
    if count > MAX_PROCESSORS {
        bail!("A model may run on at most {MAX_PROCESSORS} processors (got {count})");
    }
    let processors: Vec<usize> = w.u32s(count)?.into_iter().map(|processor| processor as usize).collect();
    let isa = Isa::detect(text(&input[8 + 4 * count..])?)?;
    let model = Arc::new(Model::new(isa, threads, &processors)?);
    let mut slots = handles();
    let free = slots.iter().position(|slot| slot.1.is_none());
    let index = free.unwrap_or_else(|| {
        slots.push((0, None));
        slots.len() - 1
    });
    let generation = slots[index].0.wrapping_add(1);
    slots[index] = (generation, Some(model));
    put(out, &(u64::from(generation) << 32 | index as u64).to_le_bytes())
}

fn text(bytes: &[u8]) -> Result<&str> {
    match std::str::from_utf8(bytes) {
        Ok(s) => Ok(s),
        Err(_) => bail!("A text is not UTF-8"),
    }
}

pub(crate) fn put(out: &mut [u8], bytes: &[u8]) -> Result<usize> {
    let Some(room) = out.get_mut(..bytes.len()) else {
        bail!("An answer of {} bytes does not fit an output of {}", bytes.len(), out.len());
    };
    room.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Runs an export's body behind `catch_unwind`, with checked slices.
///
/// # Safety
/// As for the exports.
pub(crate) unsafe fn call(
    body: impl FnOnce(u64, &[u8], &mut [u8]) -> Result<usize>,
    handle: u64,
    input: (*const u8, usize),
    output: (*mut u8, usize),
) -> i32 {
    // SAFETY: the caller guarantees valid memory; null stands for empty.
    let (input, output) = unsafe {
        (
            if input.0.is_null() { &[] } else { std::slice::from_raw_parts(input.0, input.1) },
            if output.0.is_null() { &mut [][..] } else { std::slice::from_raw_parts_mut(output.0, output.1) },
        )
    };
    let message = match catch_unwind(AssertUnwindSafe(|| body(handle, input, output))) {
        Ok(Ok(n)) => match i32::try_from(n) {
            Ok(n) => return n,
            Err(_) => format!("An answer of {n} bytes is too long"),
        },
        Ok(Err(e)) => e.to_string(),
        Err(_) => "A bug in the kernels: a call panicked".to_string(),
    };
    let n = message.len().min(output.len());
    output[..n].copy_from_slice(&message.as_bytes()[..n]);
    -1 - n as i32
}
