//! Masks of tokens that are computed while the step runs which needs them.
use crate::bail;
use crate::error::Result;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// One bit a token, set where it is allowed.
pub type Mask = Arc<[u32]>;

/// The masks of one step after the other.
#[derive(Default)]
pub struct Masks {
    board: Mutex<Board>,
    /// A mask has come, or the step is to stop.
    changed: Condvar,
}

#[derive(Default)]
struct Board {
    /// Number of the step that they are for.
    step: u32,
    /// Words of each.
    words: usize,
    given: Vec<Option<Mask>>,
}

impl Masks {
    /// Before a step: so many masks of so many words are to come. Those of earlier steps are forgotten.
    ///
    /// # Errors
    /// More masks than any step has.
    pub fn expect(&self, step: u32, masks: usize, words: usize) -> Result<()> {
        if masks > 1 << 16 {
            bail!("{masks} masks for one step; at most {} are allowed", 1 << 16);
        }
        *self.board() = Board { step, words, given: vec![None; masks] };
        Ok(())
    }

    /// Hands over a mask; one for an earlier step comes too late and is dropped.
    ///
    /// # Errors
    /// A mask that is not expected, or of another length.
    pub fn give(&self, step: u32, index: usize, mask: &[u32]) -> Result<()> {
        let mut board = self.board();
        if board.step != step {
            return Ok(());
        }
        let Board { words, given, .. } = &mut *board;
        let count = given.len();
        let Some(slot) = given.get_mut(index) else { bail!("Mask {index} of {count}") };
        if mask.len() != *words {
            bail!("A mask of {} words; {words} wanted", mask.len());
        }
        *slot = Some(mask.into());
        self.changed.notify_all();
        Ok(())
    }

    /// Whether a mask is expected, and fits a vocabulary.
    pub fn is_expected(&self, index: usize, vocab: usize) -> bool {
        let board = self.board();
        index < board.given.len() && board.words == vocab.div_ceil(32)
    }

    /// Waits for a mask; none where the step is to stop first.
    pub fn wait(&self, index: usize, stop: &AtomicBool) -> Option<Mask> {
        let mut board = self.board();
        loop {
            if stop.load(SeqCst) {
                return None;
            }
            if let Some(mask) = board.given.get(index)? {
                return Some(Arc::clone(mask));
            }
            board = self.changed.wait(board).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Lets those who wait look whether they are to stop. Taking the lock keeps the word from coming between their look and
    /// their sleep.
    pub fn wake(&self) {
        drop(self.board());
        self.changed.notify_all();
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn who_waits_gets_the_mask_of_its_step_or_hears_of_the_stop() {
        let (masks, stop) = (Masks::default(), AtomicBool::new(false));
        masks.expect(7, 2, 1).unwrap();
        assert!(masks.is_expected(1, 32) && !masks.is_expected(2, 32) && !masks.is_expected(1, 33));
        thread::scope(|scope| {
            let first = scope.spawn(|| masks.wait(0, &stop));
            let second = scope.spawn(|| masks.wait(1, &stop));
            thread::sleep(Duration::from_millis(10));
            masks.give(6, 1, &[1]).unwrap(); // too late
            masks.give(7, 1, &[2]).unwrap();
            assert_eq!(second.join().unwrap().as_deref(), Some(&[2][..]));
            stop.store(true, SeqCst);
            masks.wake();
            assert!(first.join().unwrap().is_none());
        });
    }

    #[test]
    fn a_mask_that_nobody_expects_is_refused() {
        let masks = Masks::default();
        masks.expect(1, 1, 2).unwrap();
        assert_eq!(masks.give(1, 1, &[0, 0]).unwrap_err().to_string(), "Mask 1 of 1");
        assert_eq!(masks.give(1, 0, &[0]).unwrap_err().to_string(), "A mask of 1 words; 2 wanted");
        assert!(masks.expect(2, 1 << 17, 2).is_err());
    }
}
