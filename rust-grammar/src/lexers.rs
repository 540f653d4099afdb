//! Lexers that several answers share.
//!
//! A lexer computes its states on demand, and answers of one schema need mostly the same states. In a string of
//! bounded length, for example, each position is a state. So concurrent answers share a lexer and the states that it
//! has computed. An answer waits while another one uses the same lexer, so there are as many lexers as computing
//! threads.
use llguidance::TokenParser;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of threads that compute masks at the same time, and of shared lexers per grammar.
pub const MAX_THREADS: usize = 8;

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// A lexer that answers share. It belongs to a parser that never advances; copies of that parser use the same lexer.
pub struct Lexer {
    parser: TokenParser,
    retired: AtomicBool,
}

impl Lexer {
    /// Returns a parser that is at the start of an answer and uses this lexer.
    pub fn parser(&self) -> TokenParser {
        self.parser.clone()
    }

    /// Stops giving this lexer to new answers. Answers that already use it keep it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }
}

/// The shared lexers of one grammar. Answers keep a lexer alive; it is freed with its last answer.
#[derive(Default)]
pub struct Lexers {
    held: Mutex<Vec<Weak<Lexer>>>,
    next: AtomicUsize,
}

impl Lexers {
    /// Returns the lexer for the next answer. Calls `create` for a new one if this place has none or its lexer is
    /// retired.
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
