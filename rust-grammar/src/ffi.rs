//! The functions that Deno calls. As in the kernels, every export takes a handle, input bytes and output bytes. It
//! returns the number of bytes written. On an error it writes a UTF-8 message of n bytes and returns -1 - n.
//!
//! ffi/grammar.ts has the same table.
use crate::compile::{Compiled, Grammar, Limits};
use crate::handles::{self, Object};
use crate::input::Input;
use crate::lexers::{MAX_THREADS, cores};
use crate::matcher::{Forced, Matcher};
use crate::vocabulary::Vocabulary;
use anyhow::{Result, anyhow, bail, ensure};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bump this when an export's meaning or a message's layout changes.
pub const ABI_VERSION: u32 = 4;

/// The matcher's state after a token: nothing follows in the message. The forced text must still be requested.
const TAKEN: u8 = 0;
/// The forced text follows, if any.
const LOOKED: u8 = 1;
/// The exceeded limit follows.
const FAILED: u8 = 2;

macro_rules! exports {
    ($($(#[doc = $doc:literal])+ $name:ident = $body:expr;)*) => {
        $(
            $(#[doc = $doc])+
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
    };
}

exports! {
    /// Output: the ABI version (u32).
    compy_grammar_abi_version = |_, _, out| put(out, &ABI_VERSION.to_le_bytes());
    /// Input: numbers of tokens and of end tokens (u32 each), the end tokens, each token's length in bytes (u32
    /// each), their bytes. A token without bytes is not text. Output: a handle (u64).
    compy_grammar_vocabulary = vocabulary;
    /// Handle: a vocabulary. Input: limits (u32 each, as in `Limits`), llguidance's grammars as JSON. Output: a
    /// handle, and the grammar's bytes in memory (u64 each). If compiling takes too long: the handle of the compiler,
    /// which still runs, 0 (u64), and the refusal in UTF-8.
    compy_grammar_compile = |handle, input, out| {
        let mut input = Input::new(input);
        let limits = Limits::read(&mut input)?;
        let (object, bytes, refusal) = match Grammar::compile(handles::vocabulary(handle)?, input.rest(), limits)? {
            Compiled::Grammar(grammar) => {
                let bytes = grammar.bytes() as u64;
                (Object::Grammar(grammar), bytes, String::new())
            }
            Compiled::Overdue(compiler) => (Object::Overdue(Arc::new(compiler)), 0, limits.too_long().to_string()),
        };
        let handle = handles::insert(object);
        put(out, &[&handle.to_le_bytes()[..], &bytes.to_le_bytes(), refusal.as_bytes()].concat())
    };
    /// Handle: a compiler that takes too long. Output: whether it still runs (a byte).
    compy_grammar_compiles = |handle, _, out| put(out, &[u8::from(!handles::overdue(handle)?.is_finished())]);
    /// Handle: a grammar. Output: the handle of a matcher at the start of an answer (u64), and whether the answer may
    /// be empty (a byte).
    compy_grammar_matcher = |handle, _, out| {
        let mut matcher = handles::grammar(handle)?.matcher();
        let may_end = matcher.may_end();
        let handle = handles::insert(Object::Matcher(Arc::new(Mutex::new(matcher))));
        put(out, &[&handle.to_le_bytes()[..], &[may_end.into()]].concat())
    };
    /// Handle: a matcher. Input: a token (u32). Output, a byte each: whether the token was taken, whether the answer
    /// is complete, whether it may end, and what follows. That is `TAKEN`, `LOOKED` with the output of
    /// `compy_grammar_forced`, or `FAILED` with a message in UTF-8. The message names the exceeded limit and says
    /// what to do.
    compy_grammar_consume = |handle, input, out| {
        let token = Input::new(input).u32()?;
        let matcher = handles::matcher(handle)?;
        let mut matcher = lock(&matcher)?;
        let taken = matcher.consume(token) && matcher.failure().is_none();
        let (may_end, forced) = matcher.look();
        let (follows, rest) = match (matcher.failure(), forced) {
            (Some(failure), _) => (FAILED, failure.as_bytes().to_vec()),
            (None, Some(forced)) => (LOOKED, forced_text(forced)),
            (None, None) => (TAKEN, Vec::new()),
        };
        let state = [u8::from(taken), matcher.complete().into(), may_end.into(), follows];
        put(out, &[&state, &rest[..]].concat())
    };
    /// Handle: a matcher. Output: nothing if no text is forced. Otherwise the number of crossings (u32), then each
    /// crossing (u32): the distance in bytes from the text's end to a place where a longer token may begin. Then one
    /// bit for each byte that may follow (32 bytes), then the text.
    compy_grammar_forced = |handle, _, out| {
        let matcher = handles::matcher(handle)?;
        let forced = lock(&matcher)?.forced();
        put(out, &forced_text(forced))
    };
    /// Input: matchers' handles (u64 each), all of one vocabulary. Output: their masks in order, one bit per token in
    /// 32-bit words. Zeros if no token may follow.
    compy_grammar_masks = |_, input, out| masks(input, out);
    /// Handle: a matcher, which does not advance. Input: draft tokens (u32 each). Output: the mask behind each of
    /// them, if all tokens up to it are allowed. From the first token that is not allowed on, the masks are zeros.
    compy_grammar_draft_masks = draft_masks;
    /// Frees a vocabulary, a grammar, a matcher or the handle of a compiler, and invalidates the handle.
    compy_grammar_free = |handle, _, _| {
        handles::remove(handle)?;
        Ok(0)
    };
}

/// The output of `compy_grammar_forced`.
fn forced_text(Forced { bytes, crossings, next }: Forced) -> Vec<u8> {
    if bytes.is_empty() {
        return bytes;
    }
    let mut text = (crossings.len() as u32).to_le_bytes().to_vec();
    text.extend(crossings.iter().flat_map(|c| c.to_le_bytes()));
    text.extend(next);
    text.extend(bytes);
    text
}

fn vocabulary(_: u64, input: &[u8], out: &mut [u8]) -> Result<usize> {
    let mut input = Input::new(input);
    let (tokens, ends) = (input.u32()? as usize, input.u32()? as usize);
    ensure!(tokens <= input.len() / 4 && ends <= input.len() / 4, "A message ends too early");
    let ends = (0..ends).map(|_| input.u32()).collect::<Result<Vec<_>>>()?;
    let lengths = (0..tokens).map(|_| input.u32()).collect::<Result<Vec<_>>>()?;
    let words = lengths.iter().map(|&n| Ok(input.bytes(n as usize)?.to_vec())).collect::<Result<Vec<_>>>()?;
    let vocabulary = Vocabulary::new(words, &ends)?;
    put(out, &handles::insert(Object::Vocabulary(Arc::new(vocabulary))).to_le_bytes())
}

/// Time after which other threads help to compute masks. Masks usually take at most a millisecond in total, and the
/// step's threads need the cores.
const ALONE: Duration = Duration::from_millis(2);

/// A matcher and the place of its mask, until a thread takes them.
type Job<'a> = Mutex<Option<(&'a Arc<Mutex<Matcher>>, &'a mut [u8])>>;

fn masks(input: &[u8], out: &mut [u8]) -> Result<usize> {
    let (handles, []) = input.as_chunks::<8>() else { bail!("Handles must be of 8 bytes each") };
    let Some(row) = out.len().checked_div(handles.len()) else { return Ok(0) };
    let matchers = handles.iter().map(|h| handles::matcher(u64::from_le_bytes(*h))).collect::<Result<Vec<_>>>()?;
    let bytes = out.len();
    for matcher in &matchers {
        let want = lock(matcher)?.mask_bytes();
        ensure!(row == want && bytes == row * matchers.len(), "A mask must have {want} bytes (got {row})");
    }
    let jobs: Vec<Job> = matchers.iter().zip(out.chunks_mut(row)).map(|job| Mutex::new(Some(job))).collect();
    let next = AtomicUsize::new(0);
    let work_on = |job: &Job| {
        let Some((matcher, out)) = job.lock().ok().and_then(|mut job| job.take()) else { return };
        out.fill(0);
        // A matcher whose lock is poisoned has failed; its row stays zero.
        if let Ok(mut matcher) = matcher.lock() {
            matcher.mask(out);
        }
    };
    let take = || jobs.get(next.fetch_add(1, Ordering::Relaxed));
    let start = Instant::now();
    while start.elapsed() < ALONE {
        let Some(job) = take() else { return Ok(bytes) };
        work_on(job);
    }
    let left = jobs.len().saturating_sub(next.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 1..left.min(cores()).min(MAX_THREADS) {
            // If no thread can start, this one does all the work.
            let _ = std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || std::iter::from_fn(take).for_each(work_on));
        }
        std::iter::from_fn(take).for_each(work_on);
    });
    Ok(bytes)
}

fn draft_masks(handle: u64, input: &[u8], out: &mut [u8]) -> Result<usize> {
    let (tokens, []) = input.as_chunks::<4>() else { bail!("Tokens must be of 4 bytes each") };
    let matcher = handles::matcher(handle)?;
    let (row, scout) = {
        let matcher = lock(&matcher)?;
        (matcher.mask_bytes(), matcher.scout())
    };
    let bytes = row * tokens.len();
    let room = out.len();
    let Some(out) = out.get_mut(..bytes) else { bail!("Masks must have {bytes} bytes (got {room})") };
    out.fill(0);
    let Some(mut scout) = scout else { return Ok(bytes) };
    for (token, mask) in tokens.iter().zip(out.chunks_exact_mut(row)) {
        if !scout.consume(u32::from_le_bytes(*token)) {
            break;
        }
        scout.mask(mask);
    }
    Ok(bytes)
}

const STACK: usize = 16 << 20;

fn lock(matcher: &Mutex<Matcher>) -> Result<std::sync::MutexGuard<'_, Matcher>> {
    matcher.lock().map_err(|_| anyhow!("A matcher is unusable after a bug"))
}

fn put(out: &mut [u8], bytes: &[u8]) -> Result<usize> {
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
unsafe fn call(
    body: impl FnOnce(u64, &[u8], &mut [u8]) -> Result<usize>,
    handle: u64,
    input: (*const u8, usize),
    output: (*mut u8, usize),
) -> i32 {
    // SAFETY: guaranteed by the caller; null stands for empty.
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
        Err(_) => "A bug in the grammar library: a call panicked".to_string(),
    };
    let mut n = message.len().min(output.len());
    while !message.is_char_boundary(n) {
        n -= 1;
    }
    output[..n].copy_from_slice(&message.as_bytes()[..n]);
    -1 - n as i32
}
