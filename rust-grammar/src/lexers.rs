//! Lexers that answers share.
//!
//! A lexer works out its states as texts ask for them, and answers of one schema ask for mostly the same: where a string's length is
//! bounded, each of its characters is a state. So answers that run side by side share a lexer, and what one has asked for is there for
//! the others. Who shares waits for who computes, so there are as many lexers as threads that compute.
use llguidance::TokenParser;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Threads that compute masks at once, at most.
pub const MAX_THREADS: usize = 8;

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// A lexer, as that of a parser which is never moved on; copies of the parser share it.
pub struct Lexer {
    parser: TokenParser,
    retired: AtomicBool,
}

impl Lexer {
    /// A parser at an answer's beginning.
    pub fn parser(&self) -> TokenParser {
        self.parser.clone()
    }

    /// No answer that begins from now on shares it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }
}

/// The lexers of one grammar that answers hold now. They go with the last answer.
#[derive(Default)]
pub struct Lexers {
    held: Mutex<Vec<Weak<Lexer>>>,
    next: AtomicUsize,
}

impl Lexers {
    /// The lexer for the next answer; `create` makes another where there is none, or it is retired.
    pub fn next(&self, create: impl FnOnce() -> TokenParser) -> Arc<Lexer> {
        let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        held.resize_with(cores().min(MAX_THREADS), Weak::new);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % held.len();
        let lexer = held[place].upgrade().filter(|lexer| !lexer.retired.load(Ordering::Relaxed));
        lexer.unwrap_or_else(|| {
            let lexer = Arc::new(Lexer { parser: create(), retired: AtomicBool::new(false) });
            held[place] = Arc::downgrade(&lexer);
            lexer
        })
    }
}
