//! Computes masks inside free text, such as a JSON string of bounded length. There all plain characters are allowed
//! alike, so only a plain token's length decides whether it is allowed.
//!
//! llguidance checks cheaply whether n plain characters may follow. If fewer may follow, it walks through most of the
//! vocabulary. This module instead follows the lexer's states character by character while all plain characters lead
//! to the same next state, and caches the states. The mask is then the precomputed set of tokens with at most that
//! many characters, plus a walk through the few tokens that are not plain. The walk skips tokens whose first other
//! byte is a control character or a quote, if the lexer rejects these bytes within a token's length.
use llguidance::earley::regexvec::StateID;
use llguidance::earley::{BiasComputer, ParserRecognizer, SlicedBiasComputer};
use llguidance::toktrie::{SimpleVob, TokTrie};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

/// Sets of plain tokens are precomputed for lengths up to this number of characters. Longer tokens are walked through,
/// unless a text of any length may follow.
const MOST: usize = 30;
/// Maximum characters of a token that counts as plain. A longer token is always walked through.
const LONGEST: usize = 128;
/// Work limit for comparing a lexer state with a text; llguidance uses the same.
const BUDGET: u64 = 1000;
/// Indices of the texts that `slices` returns.
const COUNTED: usize = 1;
const WHOLE: usize = 2;
const ANY: usize = 3;

/// Returns the texts that llguidance compares lexer states with: white space, and plain text of three maximum lengths.
pub fn slices() -> [String; 4] {
    let plain = |count: String| format!(r#"[^"\\\x00-\x1F\x7F]{count}"#);
    let up_to = |count: usize| plain(format!("{{1,{count}}}"));
    [r"[\x20\x0A\x0D\x09]+".into(), up_to(MOST), up_to(LONGEST), plain("+".into())]
}

/// Whether a JSON string contains the character as it is, without an escape.
fn is_plain(c: char) -> bool {
    !c.is_ascii_control() && c != '"' && c != '\\'
}

/// Returns a token's first byte that is not a plain ASCII character, if at most `MOST` plain characters precede it.
fn first_other(token: &[u8]) -> Option<u8> {
    token.iter().take(MOST + 1).copied().find(|&byte| !(byte.is_ascii() && is_plain(byte.into())))
}

/// Returns the number of plain characters in a token; the last may be incomplete. None if the token is empty or has
/// other characters.
fn plain_length(token: &[u8]) -> Option<usize> {
    let (text, cut) = match str::from_utf8(token) {
        Ok(text) => (text, 0),
        // The token ends inside a character, and every completion of it may be plain.
        Err(e) if e.error_len().is_none() => (str::from_utf8(&token[..e.valid_up_to()]).ok()?, 1),
        Err(_) => return None,
    };
    let length = text.chars().count() + cut;
    (length > 0 && text.chars().all(is_plain)).then_some(length)
}

/// UTF-8 sequences of plain characters beyond ASCII: the first byte's range, and the ranges of the bytes after it.
const SEQUENCES: [(RangeInclusive<u8>, &[RangeInclusive<u8>]); 8] = {
    const TAIL: RangeInclusive<u8> = 0x80..=0xbf;
    [
        (0xc2..=0xdf, &[TAIL]),
        (0xe0..=0xe0, &[0xa0..=0xbf, TAIL]),
        (0xe1..=0xec, &[TAIL, TAIL]),
        (0xed..=0xed, &[0x80..=0x9f, TAIL]),
        (0xee..=0xef, &[TAIL, TAIL]),
        (0xf0..=0xf0, &[0x90..=0xbf, TAIL, TAIL]),
        (0xf1..=0xf3, &[TAIL, TAIL, TAIL]),
        (0xf4..=0xf4, &[0x80..=0x8f, TAIL, TAIL]),
    ]
};

/// A vocabulary's tokens, grouped by their plain characters.
pub struct TextTokens {
    /// Set n has the tokens of at most n plain characters and no others. The last set has plain tokens of any length.
    up_to: Vec<SimpleVob>,
    /// Plain tokens of more than `MOST` characters.
    longer: TokTrie,
    /// All tokens that are not plain.
    others: TokTrie,
    /// Tokens in `others` whose `first_other` is a quote.
    quotes: TokTrie,
    /// Tokens in `others` whose `first_other` is neither a quote nor a control character.
    rest: TokTrie,
}

impl TextTokens {
    pub fn new(trie: &TokTrie) -> Self {
        let mut by_length = vec![trie.alloc_token_set(); MOST + 2];
        let [mut others, mut quotes, mut rest] = std::array::from_fn(|_| trie.alloc_token_set());
        for token in 0..trie.vocab_size() as u32 {
            let text = trie.token(token);
            match plain_length(text) {
                Some(length) if length <= LONGEST => by_length[length.min(MOST + 1)].allow_token(token),
                _ => {
                    others.allow_token(token);
                    match first_other(text) {
                        Some(b'"') => quotes.allow_token(token),
                        Some(byte) if byte.is_ascii_control() => {}
                        _ => rest.allow_token(token),
                    }
                }
            }
        }
        let longer = trie.filter(&by_length[MOST + 1]);
        let [others, quotes, rest] = [others, quotes, rest].map(|tokens| trie.filter(&tokens));
        let mut up_to = by_length;
        for length in 1..up_to.len() {
            let (shorter, from) = up_to.split_at_mut(length);
            from[0].or(&shorter[length - 1]);
        }
        Self { up_to, longer, others, quotes, rest }
    }
}

/// The next lexer state after a plain character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Every plain character leads to this state, within the same lexeme.
    State(StateID),
    /// No plain character is allowed, and the lexeme may not end here.
    Nowhere,
    /// The next state depends on the character.
    Mixed,
}

/// The ASCII characters that a lexer state allows: plain characters, control characters and the quote.
#[derive(Clone, Copy)]
struct Ascii {
    /// The lexer state after a plain character.
    next: Next,
    no_control: bool,
    no_quote: bool,
}

/// The tokens that are not plain and must be tried one by one. The lexer rejects the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// All tokens except those whose `first_other` is a control character or a quote.
    NoQuotes,
    /// All tokens except those whose `first_other` is a control character.
    NoControls,
    Any,
}

/// The number of plain characters that may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Exactly(usize),
    MoreThanCounted,
    Any,
}

/// Computes the masks of matchers that share a lexer, and caches its states.
pub struct TextMasks {
    tokens: Arc<TextTokens>,
    slices: Arc<SlicedBiasComputer>,
    known: Mutex<HashMap<StateID, Next>>,
    ascii: Mutex<HashMap<StateID, Ascii>>,
}

impl TextMasks {
    pub fn new(tokens: Arc<TextTokens>, slices: Arc<SlicedBiasComputer>) -> Self {
        Self { tokens, slices, known: Mutex::default(), ascii: Mutex::default() }
    }

    /// Returns the number of plain characters that may follow the lexer's state. None if this number depends on the
    /// characters.
    fn reach(&self, rec: &mut ParserRecognizer) -> Option<Reach> {
        let state = rec.lexer_state();
        if rec.lexer_mut().subsume_possible(state) {
            for (slice, reach) in [(ANY, Reach::Any), (WHOLE, Reach::Any), (COUNTED, Reach::MoreThanCounted)] {
                if rec.lexer_mut().check_subsume(state, slice, BUDGET, None).unwrap_or(false) {
                    return Some(reach);
                }
            }
        }
        self.count(rec)
    }

    /// Counts the plain characters that may follow: follows the lexer's states until it rejects all plain characters.
    fn count(&self, rec: &mut ParserRecognizer) -> Option<Reach> {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        let mut state = rec.lexer_state();
        for length in 0..=MOST {
            match *known.entry(state).or_insert_with(|| next(rec, state)) {
                Next::State(next) if next == state => return Some(Reach::Any),
                Next::State(next) => state = next,
                Next::Nowhere if length > 0 => return Some(Reach::Exactly(length)),
                Next::Nowhere | Next::Mixed => return None,
            }
        }
        Some(Reach::MoreThanCounted)
    }

    /// Finds which tokens that are not plain must be tried one by one: checks the lexer's states at each place where a
    /// `first_other` can be.
    fn others(&self, rec: &mut ParserRecognizer) -> Others {
        let mut known = self.ascii.lock().unwrap_or_else(|e| e.into_inner());
        let mut state = rec.lexer_state();
        let mut no_quotes = true;
        for _ in 0..=MOST {
            let Ascii { next, no_control, no_quote } = *known.entry(state).or_insert_with(|| ascii(rec, state));
            if next == Next::Mixed || !no_control {
                return Others::Any;
            }
            no_quotes &= no_quote;
            match next {
                Next::State(next) if next != state => state = next,
                _ => break,
            }
        }
        if no_quotes { Others::NoQuotes } else { Others::NoControls }
    }
}

impl BiasComputer for TextMasks {
    fn compute_bias(&self, rec: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let Some(reach) = start.is_empty().then(|| self.reach(rec)).flatten() else {
            return self.slices.compute_bias(rec, start);
        };
        let tokens = &self.tokens;
        let mut mask = self.trie().alloc_token_set();
        mask.or(&tokens.up_to[match reach {
            Reach::Exactly(length) => length,
            Reach::MoreThanCounted => MOST,
            Reach::Any => MOST + 1,
        }]);
        if reach == Reach::MoreThanCounted {
            tokens.longer.add_bias(rec, &mut mask, &[]);
        }
        let others = self.others(rec);
        if others == Others::Any {
            tokens.others.add_bias(rec, &mut mask, &[]);
            return mask;
        }
        if others == Others::NoControls {
            tokens.quotes.add_bias(rec, &mut mask, &[]);
        }
        tokens.rest.add_bias(rec, &mut mask, &[]);
        mask
    }

    fn trie(&self) -> &TokTrie {
        self.slices.trie()
    }
}

fn ascii(rec: &mut ParserRecognizer, state: StateID) -> Ascii {
    let lexer = rec.lexer_mut();
    let inside = lexer.try_lexeme_end(state).is_error();
    let mut step = |byte| lexer.transition_start_state(state, Some(byte), &None);
    let mut plain = (0..0x7f).filter(|&byte| is_plain(byte.into())).map(&mut step);
    let to = plain.next().filter(|&first| plain.all(|to| to == first));
    let next = match to {
        Some(to) if to.is_dead() && inside => Next::Nowhere,
        Some(to) if !to.is_dead() && !to.has_lowest_match() => Next::State(to),
        _ => Next::Mixed,
    };
    let mut refused = |byte| inside && step(byte).is_dead();
    let no_control = (0..=0x7f).filter(u8::is_ascii_control).all(&mut refused);
    Ascii { next, no_control, no_quote: refused(b'"') }
}

fn next(rec: &mut ParserRecognizer, state: StateID) -> Next {
    let lexer = rec.lexer_mut();
    let mut found = None;
    let mut step = |state: StateID, byte: u8| {
        if state.is_dead() { state } else { lexer.transition_start_state(state, Some(byte), &None) }
    };
    let mut agrees = |to: StateID| !to.has_lowest_match() && *found.get_or_insert(to) == to;
    for c in (0x20..0x7f).map(char::from).filter(|&c| is_plain(c)) {
        if !agrees(step(state, c as u8)) {
            return Next::Mixed;
        }
    }
    for (first, rest) in SEQUENCES {
        let mut states: Vec<StateID> = first.map(|byte| step(state, byte)).collect();
        for bytes in rest {
            states.sort_unstable_by_key(StateID::as_u32);
            states.dedup();
            // If a lexeme ends inside a character, the parser decides what may follow, not the lexer.
            if states.iter().any(StateID::has_lowest_match) {
                return Next::Mixed;
            }
            let pairs = states.iter().flat_map(|&state| bytes.clone().map(move |byte| (state, byte)));
            states = pairs.map(|(state, byte)| step(state, byte)).collect();
        }
        if !states.into_iter().all(&mut agrees) {
            return Next::Mixed;
        }
    }
    match found {
        Some(to) if !to.is_dead() => Next::State(to),
        Some(_) if lexer.try_lexeme_end(state).is_error() => Next::Nowhere,
        _ => Next::Mixed,
    }
}

#[cfg(test)]
mod tests;
