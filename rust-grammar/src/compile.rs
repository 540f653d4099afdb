//! Compiles constraints within limits.
use crate::lexers::Lexers;
use crate::matcher::Matcher;
use crate::vocabulary::Vocabulary;
use crate::{guarded, input::Input, memory, work};
use anyhow::{Result, anyhow, bail, ensure};
use llguidance::TokenParser;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Stack of a compiler thread. Compilers and grammar destructors recurse as deep as the source nests. The system only
/// commits the pages that are used.
const STACK: usize = 256 << 20;

/// Tokens of the warm-up answer of a grammar.
const WARM_UP_TOKENS: usize = 48;
/// Interval between checks of a compiler's time.
const TICK: Duration = Duration::from_millis(25);

/// A token from a mask, a different one at each step.
fn chosen(mask: &[u8], step: usize) -> Option<u32> {
    let count: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let mut left = (step as u32).wrapping_mul(0x9e37_79b9).checked_rem(count)?;
    for (i, &byte) in mask.iter().enumerate() {
        if left < byte.count_ones() {
            let bit = (0..8).filter(|bit| byte >> bit & 1 == 1).nth(left as usize)?;
            return Some(i as u32 * 8 + bit);
        }
        left -= byte.count_ones();
    }
    None
}

/// CPU time of a thread. With many threads on few cores it is a better measure than the clock.
#[cfg(target_os = "linux")]
fn computed(thread: &JoinHandle<()>) -> Option<Duration> {
    use std::os::unix::thread::JoinHandleExt;
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the handle keeps the thread's id valid; both results are written to locals.
    let known = unsafe {
        libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    known.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(not(target_os = "linux"))]
fn computed(_: &JoinHandle<()>) -> Option<Duration> {
    None
}

/// Returns the memory that compiling used to the system. Otherwise the C library keeps it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes no pointers, and other threads may allocate at the same time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

/// The cost limits of a constraint, with llguidance's names and units.
#[derive(Clone, Copy)]
pub struct Limits {
    pub milliseconds: u32,
    pub grammar_size: u32,
    pub initial_lexer_fuel: u32,
    pub step_lexer_fuel: u32,
    pub lexer_states: u32,
    pub items_in_row: u32,
    pub step_items: u32,
}

impl Limits {
    pub(crate) fn read(input: &mut Input) -> Result<Self> {
        Ok(Self {
            milliseconds: input.u32()?,
            grammar_size: input.u32()?,
            initial_lexer_fuel: input.u32()?,
            step_lexer_fuel: input.u32()?,
            lexer_states: input.u32()?,
            items_in_row: input.u32()?,
            step_items: input.u32()?,
        })
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds.into())
    }

    /// The refusal of a constraint that takes longer than `time`.
    pub(crate) fn too_long(&self) -> anyhow::Error {
        anyhow!("Compiling the constraint must take at most {} ms", self.milliseconds)
    }

    fn parser(&self) -> ParserLimits {
        ParserLimits {
            max_items_in_row: self.items_in_row as usize,
            initial_lexer_fuel: self.initial_lexer_fuel.into(),
            step_lexer_fuel: self.step_lexer_fuel.into(),
            step_max_items: self.step_items as usize,
            max_lexer_states: self.lexer_states as usize,
            max_grammar_size: self.grammar_size as usize,
            precompute_large_lexemes: true,
            // Verbose errors would quote the answer.
            verbose_errors: false,
        }
    }
}

/// A compiled constraint. Its parser never advances; each answer starts with a copy.
pub struct Grammar {
    parser: TokenParser,
    pub(crate) vocabulary: Arc<Vocabulary>,
    lexers: Lexers,
    /// A lexer with more states is not shared with further answers.
    pub(crate) shared_states: usize,
    bytes: usize,
}

/// The end of the caller's wait for a compiler.
pub enum Compiled {
    Grammar(Arc<Grammar>),
    /// The compiler takes too long. Nothing can stop it, so it still runs.
    Overdue(JoinHandle<()>),
}

impl Grammar {
    /// Compiles llguidance's list of grammars as JSON: `{"grammars": [{"name", "lark_grammar" or "json_schema"}]}`.
    ///
    /// # Errors
    /// llguidance rejects the source (its own message), or no thread can start.
    pub fn compile(vocabulary: Arc<Vocabulary>, source: &[u8], limits: Limits) -> Result<Compiled> {
        let source = source.to_vec();
        let (send, receive) = mpsc::sync_channel(0);
        let worker = std::thread::Builder::new().name("grammar".into()).stack_size(STACK).spawn(move || {
            let result = guarded(|| Self::compile_here(vocabulary, &source, limits));
            drop(source);
            trim();
            // An error means that the receiver has left.
            let _ = send.send(result);
        })?;
        let start = Instant::now();
        loop {
            match receive.recv_timeout(TICK) {
                Ok(result) => {
                    let _ = worker.join();
                    return result.map(|grammar| Compiled::Grammar(Arc::new(grammar)));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("A bug in the grammar library: a compiler ended"),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if computed(&worker).unwrap_or_else(|| start.elapsed()) >= limits.time() {
                return Ok(Compiled::Overdue(worker));
            }
        }
    }

    fn compile_here(vocabulary: Arc<Vocabulary>, source: &[u8], limits: Limits) -> Result<Self> {
        let before = memory::held();
        let start = work::computed();
        let grammar: TopLevelGrammar = serde_json::from_slice(source).map_err(|e| anyhow!("{e}"))?;
        let factory = &vocabulary.factory;
        let mut parser = factory.create_parser_from_init_ext(
            GrammarInit::Serialized(grammar),
            llguidance::Logger::new(0, 0),
            Default::default(),
            limits.parser(),
        )?;
        parser.start_without_prompt();
        let shared_states = limits.lexer_states as usize / 4;
        let mut grammar = Self { parser, vocabulary, lexers: Lexers::default(), shared_states, bytes: 0 };
        grammar.warm_up(|| {
            ensure!(work::computed().saturating_sub(start) < limits.time(), limits.too_long());
            Ok(())
        })?;
        grammar.bytes = usize::try_from(memory::held() - before).unwrap_or(0);
        Ok(grammar)
    }

    /// Runs one answer, so that the lexer has computed the states that every answer needs first. The answer depends
    /// on the grammar alone.
    ///
    /// The lexer's limits apply from the first mask on. Its fuel is renewed for each mask and the work up to the next
    /// one. So the warm-up starts with a mask and ends with one.
    ///
    /// # Errors
    /// The constraint allows no answer, or `in_time` fails before a token.
    fn warm_up(&self, in_time: impl Fn() -> Result<()>) -> Result<()> {
        let mut mask = vec![0; self.vocabulary.mask_bytes()];
        let mut scout = Matcher::new(&self.vocabulary, self.parser.clone());
        for step in 0..WARM_UP_TOKENS {
            in_time()?;
            mask.fill(0);
            scout.mask(&mut mask);
            let Some(token) = chosen(&mask, step) else {
                // No answer is possible, or the first mask fails. Report it now instead of during an answer.
                ensure!(step > 0, "The constraint allows no answer, or finding its first token takes too much work");
                break;
            };
            scout.forced();
            let states = self.parser.parser.lexer_stats().num_states;
            if !scout.consume(token) || scout.complete() || states > self.shared_states {
                break;
            }
        }
        ensure!(scout.failure() != Some(work::SLOW_MASKS), "The constraint takes too much work: {}", work::SLOW_MASKS);
        let mut first = Matcher::new(&self.vocabulary, self.parser.clone());
        first.mask(&mut mask);
        first.forced();
        ensure!(!first.failed(), "Finding the constraint's first token takes too much work");
        first.mask(&mut mask);
        Ok(())
    }

    /// A matcher at the start of an answer.
    pub fn matcher(self: &Arc<Self>) -> Matcher {
        Matcher::sharing(self.lexers.next(|| self.alone()), Arc::clone(self))
    }

    /// A parser at the start of an answer, with its own lexer.
    pub(crate) fn alone(&self) -> TokenParser {
        self.vocabulary.with_masks(self.parser.deep_clone())
    }

    /// Bytes that the grammar takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
