//! The CPU time that one answer costs the thread that takes its tokens.
//!
//! llguidance counts the parser's items, but in an ambiguous grammar it finds each item again and again, more often
//! in longer answers. Only time measures that work. It is CPU time, because other threads do not affect it.
use std::time::Duration;

/// Allowance per token of an answer. Tokens of large schemas take a hundredth of it.
const EACH: Duration = Duration::from_millis(2);
/// Allowance per answer beyond that, more than a lexer's fuel up to the next mask takes.
const BEYOND: Duration = Duration::from_millis(50);

pub const TOO_MUCH: &str = "parsing its tokens took more than 2 ms each and 50 ms beyond that; make the grammar unambiguous, \
    and left-recursive where it is right-recursive";

/// CPU time of this thread.
#[cfg(unix)]
fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is written to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn computed() -> Duration {
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

/// Time that an answer's tokens have taken, minus their allowances.
#[derive(Default)]
pub struct Account {
    owed: Duration,
}

impl Account {
    pub fn watch(&self) -> Watch {
        Watch { start: computed(), left: (BEYOND + EACH).saturating_sub(self.owed) }
    }

    /// Adds the time since the watch started. Returns false if the answer exceeds its allowance.
    pub fn charge(&mut self, watch: Watch) -> bool {
        self.owed += computed().saturating_sub(watch.start);
        self.owed <= BEYOND + EACH
    }

    /// Subtracts a token's allowance.
    pub fn forgive(&mut self) {
        self.owed = self.owed.saturating_sub(EACH);
    }
}
