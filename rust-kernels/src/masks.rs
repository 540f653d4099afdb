//! Hands token masks to a running step, so that they can be computed while the step runs.
use crate::bail;
use crate::error::Result;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A token mask: one bit per token, set if the token is allowed.
pub type Mask = Arc<[u32]>;

/// The token masks of the current step, which arrive while it runs.
#[derive(Default)]
pub struct Masks {
    board: Mutex<Board>,
    /// Signals that a mask has arrived or that the step must stop.
    changed: Condvar,
}

#[derive(Default)]
struct Board {
    /// Number of the step whose masks are on the board.
    step: u32,
    /// Number of 32-bit words in each mask.
    words: usize,
    given: Vec<Option<Mask>>,
    /// Masks of earlier steps, whose memory is used again. To allocate thousands of words per mask would cost more than
    /// to fill them.
    spare: Vec<Mask>,
}

impl Masks {
    /// Announces how many masks a step has, and how many words each mask has. Drops the masks of earlier steps.
    ///
    /// # Errors
    /// There are more masks than a step can have.
    pub fn expect(&self, step: u32, masks: usize, words: usize) -> Result<()> {
        if masks > 1 << 16 {
            bail!("A step may have at most {} masks (got {masks})", 1 << 16);
        }
        let board = &mut *self.board();
        let earlier = std::mem::replace(&mut board.given, vec![None; masks]);
        board.spare.extend(earlier.into_iter().flatten());
        board.spare.retain_mut(|mask| mask.len() == words && Arc::get_mut(mask).is_some());
        board.spare.truncate(masks);
        (board.step, board.words) = (step, words);
        Ok(())
    }

    /// Hands over mask `index` of step `step` as little-endian words. Ignores masks of earlier steps.
    ///
    /// # Errors
    /// The mask is not expected, or has another length.
    pub fn give(&self, step: u32, index: usize, mask: &[[u8; 4]]) -> Result<()> {
        let mut board = self.board();
        if board.step != step {
            return Ok(());
        }
        let Board { words, given, spare, .. } = &mut *board;
        let count = given.len();
        let Some(slot) = given.get_mut(index) else { bail!("Mask {index} is out of range 0..{count}") };
        if mask.len() != *words {
            bail!("A mask must have {words} words (got {})", mask.len());
        }
        let of = |word: &[u8; 4]| u32::from_le_bytes(*word);
        let mut kept = spare.pop();
        match kept.as_mut().and_then(Arc::get_mut) {
            Some(room) => room.iter_mut().zip(mask).for_each(|(to, word)| *to = of(word)),
            None => kept = Some(mask.iter().map(of).collect()),
        }
        *slot = kept;
        self.changed.notify_all();
        Ok(())
    }

    /// Whether mask `index` is expected and fits a vocabulary of `vocab` tokens.
    pub fn is_expected(&self, index: usize, vocab: usize) -> bool {
        let board = self.board();
        index < board.given.len() && board.words == vocab.div_ceil(32)
    }

    /// Waits for mask `index` and returns it; None if the step must stop first.
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

    /// Wakes waiting threads so that they check `stop`. The lock prevents a wake-up between a thread's check and its
    /// sleep.
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
    fn wait_returns_the_mask_of_its_step_or_none_when_stopped() {
        let (masks, stop) = (Masks::default(), AtomicBool::new(false));
        masks.expect(7, 2, 1).unwrap();
        assert!(masks.is_expected(1, 32) && !masks.is_expected(2, 32) && !masks.is_expected(1, 33));
        thread::scope(|scope| {
            let first = scope.spawn(|| masks.wait(0, &stop));
            let second = scope.spawn(|| masks.wait(1, &stop));
            thread::sleep(Duration::from_millis(10));
            masks.give(6, 1, &[[1, 0, 0, 0]]).unwrap(); // too late: a mask of an earlier step
            masks.give(7, 1, &[[2, 0, 0, 0]]).unwrap();
            assert_eq!(second.join().unwrap().as_deref(), Some(&[2][..]));
            stop.store(true, SeqCst);
            masks.wake();
            assert!(first.join().unwrap().is_none());
        });
    }

    #[test]
    fn expect_reuses_the_memory_of_masks_that_are_no_longer_read() {
        let (masks, stop) = (Masks::default(), AtomicBool::new(false));
        let word = |value: u8| [[value, 0, 0, 1]];
        let read = |index| masks.wait(index, &stop).unwrap();
        masks.expect(1, 2, 1).unwrap();
        masks.give(1, 0, &word(3)).unwrap();
        masks.give(1, 1, &word(4)).unwrap();
        let (place, held) = (read(0).as_ptr(), read(1));
        masks.expect(2, 2, 1).unwrap();
        masks.give(2, 0, &word(5)).unwrap();
        masks.give(2, 1, &word(6)).unwrap();
        assert_eq!(read(0).as_ptr(), place);
        assert_eq!([read(0)[0], read(1)[0], held[0]], [5, 6, 4].map(|low| low | 1 << 24));
        masks.expect(3, 1, 2).unwrap(); // masks for another vocabulary
        masks.give(3, 0, &[[7, 0, 0, 0], [8, 0, 0, 0]]).unwrap();
        assert_eq!(*read(0), [7, 8]);
    }

    #[test]
    fn give_rejects_unexpected_masks() {
        let masks = Masks::default();
        masks.expect(1, 1, 2).unwrap();
        assert_eq!(masks.give(1, 1, &[[0; 4]; 2]).unwrap_err().to_string(), "Mask 1 is out of range 0..1");
        assert_eq!(masks.give(1, 0, &[[0; 4]]).unwrap_err().to_string(), "A mask must have 2 words (got 1)");
        assert!(masks.expect(2, 1 << 17, 2).is_err());
    }
}
