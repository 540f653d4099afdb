//! The CPU time that one answer costs: taking its tokens, and computing its masks.
//!
//! llguidance counts the parser's items, but in an ambiguous grammar it finds each item again and again, more often
//! in longer answers. Only time measures that work. It is CPU time, because other threads do not affect it.
use std::time::Duration;

/// An allowance of time per step of an answer, and for the whole answer beyond that.
#[derive(Clone, Copy)]
pub struct Allowance {
    each: Duration,
    beyond: Duration,
}

/// For taking tokens. Tokens of large schemas take a hundredth of it. `beyond` is more than a lexer's fuel up to the
/// next mask takes.
pub const TOKENS: Allowance = Allowance { each: Duration::from_millis(2), beyond: Duration::from_millis(50) };
/// For masks. Those of large schemas over 128,000 tokens take a tenth of it.
pub const MASKS: Allowance = Allowance { each: Duration::from_millis(4), beyond: Duration::from_millis(200) };

pub const SLOW_TOKENS: &str = "parsing its tokens took more than 2 ms each and 50 ms beyond that; make the grammar \
    unambiguous, and left-recursive where it is right-recursive";
pub const SLOW_MASKS: &str = "finding the tokens that may follow took more than 4 ms each and 200 ms beyond that; make the \
    grammar unambiguous, and left-recursive where it is right-recursive";

/// CPU time of this thread.
#[cfg(unix)]
pub fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is written to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
pub fn computed() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// A measurement of work that is running on this thread.
#[derive(Clone, Copy)]
pub struct Watch {
    start: Duration,
    left: Duration,
}

impl Watch {
    /// Whether the work exceeds the allowance, if as much is still to be done as was done.
    pub fn over(&self) -> bool {
        2 * (computed().saturating_sub(self.start)) > self.left
    }
}

/// Time that an answer's steps have taken, minus their allowances.
pub struct Account {
    allowance: Allowance,
    owed: Duration,
}

impl Account {
    pub fn new(allowance: Allowance) -> Self {
        Self { allowance, owed: Duration::ZERO }
    }

    fn most(&self) -> Duration {
        self.allowance.beyond + self.allowance.each
    }

    pub fn watch(&self) -> Watch {
        Watch { start: computed(), left: self.most().saturating_sub(self.owed) }
    }

    /// Adds the time since the watch started. Returns false if the answer exceeds its allowance.
    pub fn charge(&mut self, watch: Watch) -> bool {
        self.owed += computed().saturating_sub(watch.start);
        self.owed <= self.most()
    }

    /// Subtracts the allowance of one step.
    pub fn forgive(&mut self) {
        self.owed = self.owed.saturating_sub(self.allowance.each);
    }
}
