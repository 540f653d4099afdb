//! Constraints compiled, within limits.
use crate::lexers::Lexers;
use crate::matcher::Matcher;
use crate::vocabulary::Vocabulary;
use crate::{guarded, input::Input, memory};
use anyhow::{Result, anyhow, bail, ensure};
use llguidance::TokenParser;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Compilers and dropped grammars descend as deep as what was written; the system gives only what of it is used.
const STACK: usize = 256 << 20;
/// Compilers that went on after their time was up, in the whole process.
static OVERDUE: AtomicUsize = AtomicUsize::new(0);
const MAX_OVERDUE: usize = 4;

/// Tokens of the answer that a grammar is warmed up with.
const WARM_UP_TOKENS: usize = 48;
/// How often a compiler's time is looked at.
const TICK: Duration = Duration::from_millis(25);

/// One of the tokens in a mask, a different one at each step.
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

/// The time that a thread has computed for, which says more than the clock where many threads share the cores.
#[cfg(target_os = "linux")]
fn computed(thread: &JoinHandle<()>) -> Option<Duration> {
    use std::os::unix::thread::JoinHandleExt;
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the handle is held, so that the thread's id stays its own; both results are written to locals.
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

/// Gives the system back what compiling needed for a while; else the C library keeps it for the next time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes no pointers, and other threads may allocate meanwhile.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

/// What a constraint may cost; llguidance's names and units.
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

    fn parser(&self) -> ParserLimits {
        ParserLimits {
            max_items_in_row: self.items_in_row as usize,
            initial_lexer_fuel: self.initial_lexer_fuel.into(),
            step_lexer_fuel: self.step_lexer_fuel.into(),
            step_max_items: self.step_items as usize,
            max_lexer_states: self.lexer_states as usize,
            max_grammar_size: self.grammar_size as usize,
            precompute_large_lexemes: true,
            // Errors would quote the answer.
            verbose_errors: false,
        }
    }
}

/// A compiled constraint. Its parser is never moved on: each answer starts with a copy of it.
pub struct Grammar {
    parser: TokenParser,
    pub(crate) vocabulary: Arc<Vocabulary>,
    lexers: Lexers,
    /// A lexer with more is not handed to another answer.
    pub(crate) shared_states: usize,
    bytes: usize,
}

impl Grammar {
    /// `source` is llguidance's list of grammars as JSON: `{"grammars": [{"name", "lark_grammar" or "json_schema"}]}`.
    ///
    /// # Errors
    /// What llguidance refuses, in its words, and what takes too long.
    pub fn compile(vocabulary: Arc<Vocabulary>, source: &[u8], limits: Limits) -> Result<Self> {
        let patience = Instant::now() + Duration::from_millis(limits.milliseconds.into());
        while OVERDUE.load(Ordering::Relaxed) >= MAX_OVERDUE {
            ensure!(
                Instant::now() < patience,
                "Constraints that take too long are still being compiled; try again later"
            );
            std::thread::sleep(TICK);
        }
        let source = source.to_vec();
        let (send, receive) = mpsc::sync_channel(0);
        let worker = std::thread::Builder::new().name("grammar".into()).stack_size(STACK).spawn(move || {
            let result = guarded(|| Self::compile_here(vocabulary, &source, limits));
            drop(source);
            trim();
            if send.send(result).is_err() {
                OVERDUE.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        let start = Instant::now();
        loop {
            match receive.recv_timeout(TICK) {
                Ok(result) => {
                    let _ = worker.join();
                    return result;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("A bug in the grammar library: a compiler ended"),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let limit = Duration::from_millis(limits.milliseconds.into());
            if computed(&worker).unwrap_or_else(|| start.elapsed()) >= limit {
                // The channel has no room: `send` succeeds only where somebody still waits.
                OVERDUE.fetch_add(1, Ordering::Relaxed);
                drop(receive);
                bail!("The constraint's time to compile must be at most {} ms", limits.milliseconds);
            }
        }
    }

    fn compile_here(vocabulary: Arc<Vocabulary>, source: &[u8], limits: Limits) -> Result<Self> {
        let before = memory::held();
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
        grammar.warm_up()?;
        grammar.bytes = usize::try_from(memory::held() - before).unwrap_or(0);
        Ok(grammar)
    }

    /// Walks through one answer, so that the lexer has worked out what every answer asks of it first. The way depends on nothing
    /// but the grammar.
    ///
    /// The lexer is held to its limits from the first mask on, and has for each mask, with what follows up to the next, its fuel
    /// anew: so masks come first here, and one comes last.
    fn warm_up(&self) -> Result<()> {
        let mut mask = vec![0; self.vocabulary.mask_bytes()];
        let mut scout = Matcher::new(&self.vocabulary, self.parser.clone());
        for step in 0..WARM_UP_TOKENS {
            mask.fill(0);
            scout.mask(&mut mask);
            let Some(token) = chosen(&mask, step) else {
                // Nothing can ever be answered: better said now than in the midst of it.
                ensure!(
                    step > 0,
                    "The constraint lets nothing be answered, or its first token is too much work to find"
                );
                break;
            };
            scout.forced();
            let states = self.parser.parser.lexer_stats().num_states;
            if !scout.consume(token) || scout.complete() || states > self.shared_states {
                break;
            }
        }
        let mut first = Matcher::new(&self.vocabulary, self.parser.clone());
        first.mask(&mut mask);
        first.forced();
        ensure!(!first.failed(), "The constraint's first token is too much work to find");
        first.mask(&mut mask);
        Ok(())
    }

    /// A matcher at an answer's beginning.
    pub fn matcher(self: &Arc<Self>) -> Matcher {
        Matcher::sharing(self.lexers.next(|| self.alone()), Arc::clone(self))
    }

    /// A parser at an answer's beginning with a lexer of its own.
    pub(crate) fn alone(&self) -> TokenParser {
        self.vocabulary.with_masks(self.parser.deep_clone())
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
