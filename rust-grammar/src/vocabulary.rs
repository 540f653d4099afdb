//! A model's tokens as llguidance wants them: a trie of their bytes, and slices of it whose masks are known beforehand.
use crate::text_masks::{TextMasks, TextTokens, slices};
use anyhow::{Result, bail, ensure};
use llguidance::{ParserFactory, TokenParser};
use toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use std::sync::Arc;

/// The trie's nodes have 10 bits for their depth and 22 for the nodes below them.
const MAX_TOKEN_BYTES: usize = 1000;
const MAX_TOKENS: usize = 1 << 20;
const MAX_BYTES: usize = (1 << 22) - 1;

/// A trie alone: texts are divided by the tokenizer, on the other side of the FFI.
struct Trie(TokTrie);

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    /// llguidance must not force tokens by itself: they would be those of a greedy division.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

pub struct Vocabulary {
    pub(crate) factory: ParserFactory,
    text: Arc<TextTokens>,
    pub(crate) size: usize,
    pub(crate) ends: Vec<TokenId>,
}

impl Vocabulary {
    /// `words` has each token's bytes; none where it is no text. `ends` are the tokens that an answer ends with.
    ///
    /// # Errors
    /// Too many tokens, or too long ones.
    pub fn new(mut words: Vec<Vec<u8>>, ends: &[TokenId]) -> Result<Self> {
        let size = words.len();
        ensure!((1..=MAX_TOKENS).contains(&size), "A vocabulary must have 1 to {MAX_TOKENS} tokens (got {size})");
        let bytes: usize = words.iter().map(Vec::len).sum();
        ensure!(bytes <= MAX_BYTES, "A vocabulary's tokens must have at most {MAX_BYTES} bytes (got {bytes})");
        for (token, word) in words.iter_mut().enumerate() {
            let length = word.len();
            if length > MAX_TOKEN_BYTES {
                bail!("Token {token} must have at most {MAX_TOKEN_BYTES} bytes (got {length})");
            }
            // No text: reached by its number alone, and never by a byte, as 0xFF is in no UTF-8.
            if word.is_empty() || word[0] == TokTrie::SPECIAL_TOKEN_MARKER || ends.contains(&(token as TokenId)) {
                *word = format!("\u{0}[{token}]").into_bytes();
                word[0] = TokTrie::SPECIAL_TOKEN_MARKER;
            }
        }
        ensure!(ends.iter().all(|&t| (t as usize) < size), "An end token must be one of the {size} tokens");
        let info = TokRxInfo {
            vocab_size: size as u32,
            tok_eos: ends.first().copied().unwrap_or(INVALID_TOKEN),
            tok_bos: None,
            tok_pad: None,
            tok_unk: None,
            tok_end_of_turn: None,
        };
        let trie = TokTrie::from(&info, &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
        let env: TokEnv = Arc::new(Trie(trie));
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices())?;
        factory.quiet();
        let text = Arc::new(TextTokens::new(env.tok_trie()));
        Ok(Self { factory, text, size, ends: ends.to_vec() })
    }

    /// What computes the masks of parsers that share a lexer, whose states it remembers.
    pub(crate) fn masks(&self) -> Arc<TextMasks> {
        Arc::new(TextMasks::new(Arc::clone(&self.text), self.factory.slicer()))
    }

    /// The parser, and copies that share its lexer, with masks computed so.
    pub(crate) fn with_masks(&self, mut parser: TokenParser) -> TokenParser {
        parser.bias_computer = self.masks();
        parser
    }

    /// Whole words of 32 bits, a bit a token.
    pub(crate) fn mask_bytes(&self) -> usize {
        4 * self.size.div_ceil(32)
    }
}
