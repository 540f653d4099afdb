//! The vocabulary of a model in the form that llguidance needs: a trie of the tokens' bytes, and slices of the trie
//! with precomputed masks.
use crate::text_masks::{TextMasks, TextTokens, slices};
use anyhow::{Result, bail, ensure};
use llguidance::{ParserFactory, TokenParser};
use toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use std::sync::Arc;

/// llguidance stores a node's depth in 10 bits and the number of nodes below it in 22 bits.
const MAX_TOKEN_BYTES: usize = 1000;
const MAX_TOKENS: usize = 1 << 20;
const MAX_BYTES: usize = (1 << 22) - 1;

/// The trie, without a tokenizer: the engine splits text into tokens on its side of the FFI.
struct Trie(TokTrie);

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    /// Returns false, so that llguidance forces no tokens by itself. It would split the text greedily.
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
    /// Builds a vocabulary. `words` has each token's bytes, which are empty if the token is not text. `ends` are the
    /// tokens that end an answer.
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
            // The token is not text, so no bytes may lead to it. It gets a name that begins with 0xFF, which UTF-8
            // never contains.
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

    /// Returns a new cache of lexer states that computes masks for parsers with the same lexer.
    pub(crate) fn masks(&self) -> Arc<TextMasks> {
        Arc::new(TextMasks::new(Arc::clone(&self.text), self.factory.slicer()))
    }

    /// Lets the parser, and its copies with the same lexer, compute their masks with `TextMasks`.
    pub(crate) fn with_masks(&self, mut parser: TokenParser) -> TokenParser {
        parser.bias_computer = self.masks();
        parser
    }

    /// Size of a mask in bytes: one bit per token, padded to 32-bit words.
    pub(crate) fn mask_bytes(&self) -> usize {
        4 * self.size.div_ceil(32)
    }
}
