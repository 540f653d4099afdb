//! A matcher follows one answer token by token and tells which tokens its grammar allows next.
use crate::compile::Grammar;
use crate::guarded;
use crate::lexers::Lexer;
use crate::vocabulary::Vocabulary;
use crate::work::{self, Account, Watch};
use anyhow::{Result, ensure};
use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::earley::ParserError;
use llguidance::toktrie::{Recognizer, TokTrie, TokenId};
use std::sync::Arc;

pub struct Matcher {
    parser: TokenParser,
    vocabulary: Arc<Vocabulary>,
    /// Whether the answer has taken an end token.
    ended: bool,
    /// Whether the answer exceeded a limit or an error occurred. No token may follow then.
    failed: bool,
    work: Account,
    masks: Account,
    /// The work limit that the answer exceeded, if any.
    too_much: Option<&'static str>,
    shared: Option<Shared>,
}

/// Additional state of a matcher that shares its lexer with other answers.
struct Shared {
    lexer: Arc<Lexer>,
    grammar: Arc<Grammar>,
    /// All calls to the parser so far. A private lexer replays them if the shared lexer fails.
    asked: Vec<Asked>,
}

#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Mask,
    Token(TokenId),
}

/// The clock is checked each time the parser has added this number of items.
const ITEMS: usize = 256;

/// Forced text: text that must follow in the answer, and the context that is needed to split it into tokens.
#[derive(Default)]
pub struct Forced {
    /// The forced text as UTF-8. A token that is not text appears as the byte 0xFF, then `[id]`.
    pub bytes: Vec<u8>,
    /// Distances in bytes from the text's end. At each of these places a token may begin that is longer than the rest
    /// of the text.
    pub crossings: Vec<u32>,
    /// Set of the bytes that may follow the text: one bit for each of 256 bytes.
    pub next: [u8; 32],
}

impl Matcher {
    /// Returns a matcher for a parser whose lexer no other answer uses.
    pub(crate) fn new(vocabulary: &Arc<Vocabulary>, parser: TokenParser) -> Self {
        Self {
            parser: vocabulary.with_masks(parser),
            vocabulary: Arc::clone(vocabulary),
            ended: false,
            failed: false,
            work: Account::new(work::TOKENS),
            masks: Account::new(work::MASKS),
            too_much: None,
            shared: None,
        }
    }

    pub(crate) fn sharing(lexer: Arc<Lexer>, grammar: Arc<Grammar>) -> Self {
        Self {
            parser: lexer.parser(),
            vocabulary: Arc::clone(&grammar.vocabulary),
            ended: false,
            failed: false,
            work: Account::new(work::TOKENS),
            masks: Account::new(work::MASKS),
            too_much: None,
            shared: Some(Shared { lexer, grammar, asked: Vec::new() }),
        }
    }

    /// Returns a copy of this matcher that can run ahead of the answer on guessed tokens. None if the answer has its
    /// own lexer, because a guess must not use up that lexer's limits.
    pub fn scout(&self) -> Option<Self> {
        self.shared.as_ref()?;
        Some(Self {
            parser: self.parser.clone(),
            vocabulary: Arc::clone(&self.vocabulary),
            ended: self.ended,
            failed: self.failed,
            work: Account::new(work::TOKENS),
            masks: Account::new(work::MASKS),
            too_much: None,
            shared: None,
        })
    }

    pub fn mask_bytes(&self) -> usize {
        self.vocabulary.mask_bytes()
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// Returns the limit that the last token exceeded and what to do about it; None if it exceeded none.
    pub fn failure(&self) -> Option<&'static str> {
        self.too_much
    }

    /// Whether the answer is complete and only its end may follow.
    pub fn complete(&self) -> bool {
        !self.failed
            && (self.ended || matches!(self.parser.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence))
    }

    /// Whether the grammar allows the answer to end here.
    pub fn may_end(&mut self) -> bool {
        if self.failed || self.complete() {
            return !self.failed;
        }
        self.attempt(|matcher| {
            let watch = matcher.work.watch();
            let accepting = matcher.parser.is_accepting();
            matcher.charge(watch);
            Ok(accepting)
        })
        .unwrap_or(false)
    }

    /// Returns whether the answer may end here, and the text that must follow. The text is None until the answer has
    /// taken all text that was forced earlier.
    pub fn look(&mut self) -> (bool, Option<Forced>) {
        if self.failed || self.complete() {
            return (!self.failed, Some(Forced::default()));
        }
        let looked = self.attempt(|matcher| {
            let watch = matcher.work.watch();
            let accepting = matcher.parser.is_accepting();
            let pending = !matcher.parser.parser.currently_forced_bytes().is_empty();
            let forced = (!pending).then(|| matcher.forced_here());
            // If this call exceeds the answer's work limit, its next token fails with a message.
            matcher.work.charge(watch);
            Ok((accepting, forced))
        });
        looked.unwrap_or((false, Some(Forced::default())))
    }

    /// Appends a token to the answer. Returns false and changes nothing if the token is not allowed here.
    pub fn consume(&mut self, token: TokenId) -> bool {
        self.failed |= self.too_much.is_some();
        if self.failed || self.ended || token as usize >= self.vocabulary.size {
            return false;
        }
        if self.complete() {
            self.ended = self.vocabulary.ends.contains(&token);
            return self.ended;
        }
        let taken = self.attempt(|matcher| {
            let watch = matcher.work.watch();
            let taken = matcher.take(token, watch);
            matcher.charge(watch);
            taken
        });
        self.work.forgive();
        if let (Some(true), Some(shared)) = (taken, &mut self.shared) {
            shared.asked.push(Asked::Token(token));
        }
        match taken {
            Some(false) if self.vocabulary.ends.contains(&token) => {
                // A grammar may name an end token as a normal token. llguidance rejects it where the answer may not
                // end, but the mask allows it.
                self.ended = self.allows(token);
                self.ended
            }
            taken => taken.unwrap_or(false),
        }
    }

    fn take(&mut self, token: TokenId, watch: Watch) -> Result<bool> {
        if !self.walk(token, watch) && (self.too_much.is_some() || !self.parser.validate_token(token)?) {
            return Ok(false);
        }
        self.parser.consume_token(token)?;
        self.parser.check_stop()?;
        Ok(true)
    }

    /// Whether the token's bytes are allowed here. False for tokens that are not text, and while text is forced. The
    /// matcher stays as it is. The clock is checked between bytes, because each byte of a long token may cost as much
    /// as a short token.
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
        if over {
            self.too_much = Some(work::SLOW_TOKENS);
        }
        valid
    }

    fn charge(&mut self, watch: Watch) {
        if !self.work.charge(watch) {
            self.too_much = Some(work::SLOW_TOKENS);
        }
        self.failed |= self.too_much.is_some();
    }

    fn allows(&mut self, token: TokenId) -> bool {
        let mut mask = vec![0; self.mask_bytes()];
        self.mask(&mut mask);
        mask[token as usize / 8] >> (token % 8) & 1 == 1
    }

    /// Sets the bit in `mask` of each token that may follow. All bits must be zero before.
    pub fn mask(&mut self, mask: &mut [u8]) {
        if self.failed || self.ended {
            return;
        }
        if self.complete() {
            for &end in &self.vocabulary.ends {
                mask[end as usize / 8] |= 1 << (end % 8);
            }
            return;
        }
        let computed = self.attempt(|matcher| {
            let watch = matcher.masks.watch();
            let set = matcher.parser.compute_mask()?;
            // If this mask exceeds the answer's work limit, the next token fails with a message.
            if !matcher.masks.charge(watch) {
                matcher.too_much = Some(work::SLOW_MASKS);
            }
            matcher.masks.forgive();
            Ok((set, matcher.parser.parser.lexer_stats().num_states))
        });
        let Some((set, states)) = computed else { return };
        for (bytes, word) in mask.chunks_exact_mut(4).zip(set.as_slice()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        if let Some(Shared { lexer, grammar, asked }) = &mut self.shared {
            if asked.last() != Some(&Asked::Mask) {
                asked.push(Asked::Mask);
            }
            if states > grammar.shared_states {
                lexer.retire();
            }
        }
    }

    pub fn forced(&mut self) -> Forced {
        if self.failed || self.complete() {
            return Forced::default();
        }
        let forced = self.attempt(|matcher| {
            let watch = matcher.work.watch();
            let forced = matcher.forced_here();
            // If this call exceeds the answer's work limit, its next token fails with a message.
            matcher.work.charge(watch);
            Ok(forced)
        });
        forced.unwrap_or_default()
    }

    fn forced_here(&mut self) -> Forced {
        let bytes = self.parser.force_bytes();
        if bytes.is_empty() {
            return Forced::default();
        }
        let trie = self.parser.token_env.tok_trie();
        // Tokens never span a token that is not text, so only the text after the last of these counts.
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

    /// Runs `body`; returns None if the matcher has failed for good. If other answers have exhausted a shared lexer,
    /// the matcher first replays its answer on a private lexer.
    fn attempt<T>(&mut self, body: impl Fn(&mut Self) -> Result<T>) -> Option<T> {
        let result = guarded(|| {
            let result = body(self)?;
            ensure!(self.parser.parser.get_error().is_none(), "The parser has failed");
            Ok(result)
        });
        match result {
            _ if self.failed => None,
            Ok(result) => Some(result),
            Err(_) if self.lexer_failed() && self.go_alone() => self.attempt(body),
            Err(_) => {
                self.failed = true;
                None
            }
        }
    }

    /// Whether the lexer exceeded a limit, or a call panicked while it had locked the lexer.
    fn lexer_failed(&self) -> bool {
        let error = guarded(|| Ok(self.parser.parser.get_error()));
        matches!(error, Ok(Some(ParserError::LexerError(_))) | Err(_))
    }

    /// Replays the answer so far on a private lexer instead of the shared one. Returns whether that worked.
    fn go_alone(&mut self) -> bool {
        let Some(Shared { lexer, grammar, asked }) = self.shared.take() else { return false };
        lexer.retire();
        let again = guarded(|| {
            let mut parser = grammar.alone();
            for asked in asked {
                match asked {
                    Asked::Mask => drop(parser.compute_mask()?),
                    Asked::Token(token) => {
                        parser.consume_token(token)?;
                        parser.check_stop()?;
                    }
                }
            }
            Ok(parser)
        });
        again.map(|parser| self.parser = parser).is_ok()
    }
}
