//! A model's tokens for llguidance: a trie of their bytes, and slices of it with precomputed masks.
use crate::text_masks::{TextMasks, TextTokens, slices};
use anyhow::{Result, bail, ensure};
use llguidance::{ParserFactory, TokenParser};
use toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use std::sync::Arc;

/// The trie's nodes have 10 bits for the depth and 22 bits for the number of nodes below.
const MAX_TOKEN_BYTES: usize = 1000;
const MAX_TOKENS: usize = 1 << 20;
const MAX_BYTES: usize = (1 << 22) - 1;

/// The trie alone. The tokenizer on the other side of the FFI splits text into tokens.
struct Trie(TokTrie);

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    /// llguidance must not force tokens by itself, because it would split text greedily.
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
    /// `words` has each token's bytes, empty if the token is not text. `ends` are the tokens that end an answer.
    ///
    /// # Errors
    /// There are too many tokens, or a token is too long.
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
            // Not text: only its id can reach it, no byte can, because UTF-8 never contains 0xFF.
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

    /// Computes masks for parsers that share a lexer, and caches the lexer's states.
    pub(crate) fn masks(&self) -> Arc<TextMasks> {
        Arc::new(TextMasks::new(Arc::clone(&self.text), self.factory.slicer()))
    }

    /// Makes the parser, and the copies that share its lexer, compute masks this way.
    pub(crate) fn with_masks(&self, mut parser: TokenParser) -> TokenParser {
        parser.bias_computer = self.masks();
        parser
    }

    /// Bytes of a mask: one bit per token, padded to 32-bit words.
    pub(crate) fn mask_bytes(&self) -> usize {
        4 * self.size.div_ceil(32)
    }
}
