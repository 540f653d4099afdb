//! What one answer costs the thread that takes its tokens.
//!
//! llguidance counts the parser's items, and an item of an ambiguous grammar is found again and again: the longer the answer, the
//! more often. Only time tells that work, and of that what the thread computed for, which other threads do not change.
use std::time::Duration;

/// What each of an answer's tokens may take. Those of large schemas take a hundredth of that.
const EACH: Duration = Duration::from_millis(2);
/// What they may take beyond that, in all: more than a lexer's fuel up to the next mask is worth.
const BEYOND: Duration = Duration::from_millis(50);

pub const TOO_MUCH: &str = "parsing its tokens took more than 2 ms each and 50 ms beyond that; make the grammar unambiguous, \
    and left-recursive where it is right-recursive";

/// The time that this thread has computed for.
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

/// Work under way on this thread.
#[derive(Clone, Copy)]
pub struct Watch {
    start: Duration,
    left: Duration,
}

impl Watch {
    /// Whether it is too much, where as much as was done is still to do.
    pub fn over(&self) -> bool {
        2 * (computed().saturating_sub(self.start)) > self.left
    }
}

/// What an answer's tokens have taken, less what they may take each.
#[derive(Default)]
pub struct Account {
    owed: Duration,
}

impl Account {
    pub fn watch(&self) -> Watch {
        Watch { start: computed(), left: (BEYOND + EACH).saturating_sub(self.owed) }
    }

    /// Adds what was done since; false where it is too much.
    pub fn charge(&mut self, watch: Watch) -> bool {
        self.owed += computed().saturating_sub(watch.start);
        self.owed <= BEYOND + EACH
    }

    /// Lets a token's share go.
    pub fn forgive(&mut self) {
        self.owed = self.owed.saturating_sub(EACH);
    }
}
