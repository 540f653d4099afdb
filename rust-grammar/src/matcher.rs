//! How far one answer is.
use crate::compile::Grammar;
use crate::guarded;
use crate::vocabulary::Vocabulary;
use crate::work::{self, Account, Watch};
use anyhow::Result;
use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::toktrie::{Recognizer, TokTrie, TokenId};
use std::sync::Arc;

pub struct Matcher {
    parser: TokenParser,
    vocabulary: Arc<Vocabulary>,
    /// An end token was taken.
    ended: bool,
    /// A limit was passed or something broke: nothing can follow any more.
    failed: bool,
    work: Account,
    /// Its tokens took too long.
    too_much: bool,
}

/// Items of the parser between two looks at the clock.
const ITEMS: usize = 256;

/// Text that must come next, and what must be known of its surroundings to divide it into tokens.
#[derive(Default)]
pub struct Forced {
    /// UTF-8, and 0xFF `[id]` for tokens that are no text.
    pub bytes: Vec<u8>,
    /// From the text's end backwards, in bytes: where a token may begin that extends past it.
    pub crossings: Vec<u32>,
    /// A bit for each byte that may follow the text.
    pub next: [u8; 32],
}

impl Matcher {
    pub(crate) fn new(grammar: &Grammar, mut parser: TokenParser) -> Self {
        // It remembers states of this parser's lexer, which is a copy.
        parser.bias_computer = grammar.vocabulary.masks();
        Self {
            parser,
            vocabulary: Arc::clone(&grammar.vocabulary),
            ended: false,
            failed: false,
            work: Account::default(),
            too_much: false,
        }
    }

    pub fn mask_words(&self) -> usize {
        self.vocabulary.mask_words()
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// Which limit was passed in taking a token, and what to do.
    pub fn failure(&self) -> Option<&'static str> {
        self.too_much.then_some(work::TOO_MUCH)
    }

    /// Whether the answer is whole and nothing but its end may follow.
    pub fn complete(&self) -> bool {
        !self.failed
            && (self.ended || matches!(self.parser.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence))
    }

    /// Whether the answer is whole as it stands.
    pub fn may_end(&mut self) -> bool {
        if self.failed || self.complete() {
            return !self.failed;
        }
        let watch = self.work.watch();
        let accepting = guarded(|| Ok(self.parser.is_accepting()));
        self.charge(watch);
        self.settle(accepting).unwrap_or(false)
    }

    /// Takes a token; false, and nothing is changed, where it may not come here.
    pub fn consume(&mut self, token: TokenId) -> bool {
        if self.failed || self.ended || token as usize >= self.vocabulary.size {
            return false;
        }
        if self.complete() {
            self.ended = self.vocabulary.ends.contains(&token);
            return self.ended;
        }
        let watch = self.work.watch();
        let taken = guarded(|| {
            if !self.walk(token, watch) && (self.too_much || !self.parser.validate_token(token)?) {
                return Ok(false);
            }
            self.parser.consume_token(token)?;
            self.parser.check_stop()?;
            Ok(true)
        });
        self.charge(watch);
        self.work.forgive();
        match self.settle(taken) {
            Some(false) if self.vocabulary.ends.contains(&token) => {
                // llguidance takes an end token only where the answer may end; a grammar may also name one.
                self.ended = self.allows(token);
                self.ended
            }
            taken => taken.unwrap_or(false),
        }
    }

    /// Whether the token's bytes may come here, where it is text of which nothing is forced yet. Nothing is changed. A token may
    /// be of many bytes, each of which may cost as much as a token: so the clock is looked at in between.
    fn walk(&mut self, token: TokenId, watch: Watch) -> bool {
        let bytes = self.parser.token_env.tok_trie().token(token).to_vec();
        if bytes.is_empty()
            || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER)
            || !self.parser.parser.currently_forced_bytes().is_empty()
        {
            return false;
        }
        let mut over = false;
        let valid = self.parser.parser.with_recognizer(|recognizer| {
            recognizer.trie_started("token");
            let mut looked = recognizer.stats_mut().all_items;
            let valid = bytes.iter().all(|&byte| {
                let items = recognizer.stats_mut().all_items;
                if items - looked >= ITEMS {
                    looked = items;
                    over = watch.over();
                }
                !over && recognizer.try_push_byte(byte)
            });
            recognizer.trie_finished();
            valid
        });
        self.too_much |= over;
        valid
    }

    fn charge(&mut self, watch: Watch) {
        self.too_much |= !self.work.charge(watch);
        self.failed |= self.too_much;
    }

    fn allows(&mut self, token: TokenId) -> bool {
        let mut mask = vec![0; self.mask_words()];
        self.mask(&mut mask);
        mask[token as usize / 32] >> (token % 32) & 1 == 1
    }

    /// One bit a token into `mask`, which comes zeroed: set where the token may come next.
    pub fn mask(&mut self, mask: &mut [u32]) {
        if self.failed || self.ended {
            return;
        }
        if self.complete() {
            for &end in &self.vocabulary.ends {
                mask[end as usize / 32] |= 1 << (end % 32);
            }
            return;
        }
        let computed = guarded(|| self.parser.compute_mask());
        if let Some(set) = self.settle(computed) {
            mask.copy_from_slice(&set.as_slice()[..mask.len()]);
        }
    }

    pub fn forced(&mut self) -> Forced {
        if self.failed || self.complete() {
            return Forced::default();
        }
        let watch = self.work.watch();
        let forced = guarded(|| Ok(self.forced_here()));
        // Where it is too much, the next token is refused, and says so.
        self.work.charge(watch);
        self.settle(forced).unwrap_or_default()
    }

    fn forced_here(&mut self) -> Forced {
        let bytes = self.parser.force_bytes();
        if bytes.is_empty() {
            return Forced::default();
        }
        let trie = self.parser.token_env.tok_trie();
        // A token that is no text parts what is before it from what comes after.
        let text = bytes.iter().rposition(|&b| b == TokTrie::SPECIAL_TOKEN_MARKER).map_or(0, |marker| {
            marker + bytes[marker..].iter().position(|&b| b == b']').map_or(bytes.len() - marker, |end| end + 1)
        });
        let tail = &bytes[text.max(bytes.len().saturating_sub(trie.max_token_len()))..];
        let mut crossings = Vec::new();
        let mut next = [0; 32];
        self.parser.parser.with_recognizer(|recognizer| {
            for start in 0..tail.len() {
                if trie.has_valid_extensions(recognizer, &tail[start..]) {
                    crossings.push((tail.len() - start) as u32);
                }
            }
            recognizer.trie_started("next bytes");
            for byte in 0..TokTrie::SPECIAL_TOKEN_MARKER {
                if recognizer.byte_allowed(byte) {
                    next[byte as usize / 8] |= 1 << (byte % 8);
                }
            }
            recognizer.trie_finished();
        });
        Forced { bytes, crossings, next }
    }

    /// What went well; else the matcher has failed for good.
    fn settle<T>(&mut self, result: Result<T>) -> Option<T> {
        let broken = self.failed || result.is_err() || self.parser.parser.get_error().is_some();
        self.failed |= broken;
        if broken { None } else { result.ok() }
    }
}
