//! A value that threads use in turns, in the order of their requests. A plain mutex may serve the same thread again and
//! again while others wait.
use super::sync::{Condvar, Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};

pub struct Turns<T> {
    line: Mutex<Line>,
    moved: Condvar,
    held: Mutex<T>,
}

/// The next ticket to hand out, and the ticket whose turn it is.
#[derive(Default)]
struct Line {
    next: u64,
    turn: u64,
}

impl<T> Turns<T> {
    pub fn new(held: T) -> Self {
        Self { line: Mutex::new(Line::default()), moved: Condvar::new(), held: Mutex::new(held) }
    }

    /// Waits until all earlier requests have had their turn. Returns access to the value.
    pub fn take(&self) -> Turn<'_, T> {
        let mut line = lock(&self.line);
        let own = line.next;
        line.next += 1;
        while line.turn != own {
            line = self.moved.wait(line).unwrap_or_else(|e| e.into_inner());
        }
        drop(line);
        Turn { turns: self, held: Some(lock(&self.held)) }
    }

    /// Returns whether a thread waits for its turn.
    pub fn is_wanted(&self) -> bool {
        let line = lock(&self.line);
        line.next > line.turn + 1
    }
}

/// A thread's turn: access to the value. Dropping it ends the turn.
pub struct Turn<'a, T> {
    turns: &'a Turns<T>,
    held: Option<MutexGuard<'a, T>>,
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        let mut line = lock(&self.turns.line);
        line.turn += 1;
        if line.turn != line.next {
            self.turns.moved.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn take_serves_threads_in_order_and_repeated_requests_last() {
        let turns = Turns::new(Vec::new());
        let asked = |n: u64| {
            while lock(&turns.line).next < n {
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::scope(|scope| {
            let first = turns.take();
            for name in ["second", "third"] {
                let (turns, before) = (&turns, lock(&turns.line).next);
                scope.spawn(move || {
                    turns.take().push(name);
                    turns.take().push("again");
                });
                asked(before + 1);
            }
            drop(first);
        });
        assert_eq!(*turns.take(), ["second", "third", "again", "again"]);
    }

    #[test]
    fn take_works_after_a_turn_that_panicked() {
        let turns = Turns::new(0);
        let failed = thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _turn = turns.take();
                    panic!("in its turn");
                })
                .join()
        });
        assert!(failed.is_err());
        *turns.take() += 1;
        assert_eq!(*turns.take(), 1);
    }
}
