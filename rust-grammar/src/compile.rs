//! Constraints compiled, within limits.
use crate::vocabulary::Vocabulary;
use crate::{guarded, input::Input};
use anyhow::{Result, anyhow, bail};
use llguidance::TokenParser;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Compilers and dropped grammars descend as deep as what was written; the system gives only what of it is used.
const STACK: usize = 256 << 20;
/// Compilers that went on after their time was up, in the whole process.
static OVERDUE: AtomicUsize = AtomicUsize::new(0);
const MAX_OVERDUE: usize = 2;

/// What a constraint may cost; llguidance's names and units.
#[derive(Clone, Copy)]
pub struct Limits {
    pub milliseconds: u32,
    pub grammar_size: u32,
    pub initial_lexer_fuel: u32,
    pub step_lexer_fuel: u32,
    pub lexer_states: u32,
    pub items_in_row: u32,
    pub step_items: u32,
}

impl Limits {
    pub(crate) fn read(input: &mut Input) -> Result<Self> {
        Ok(Self {
            milliseconds: input.u32()?,
            grammar_size: input.u32()?,
            initial_lexer_fuel: input.u32()?,
            step_lexer_fuel: input.u32()?,
            lexer_states: input.u32()?,
            items_in_row: input.u32()?,
            step_items: input.u32()?,
        })
    }

    fn parser(&self) -> ParserLimits {
        ParserLimits {
            max_items_in_row: self.items_in_row as usize,
            initial_lexer_fuel: self.initial_lexer_fuel.into(),
            step_lexer_fuel: self.step_lexer_fuel.into(),
            step_max_items: self.step_items as usize,
            max_lexer_states: self.lexer_states as usize,
            max_grammar_size: self.grammar_size as usize,
            precompute_large_lexemes: true,
            // Errors would quote the answer.
            verbose_errors: false,
        }
    }
}

/// A compiled constraint. Its parser is never moved on: each answer starts with a copy of it, lexer and all, so that
/// no answer depends on what another one has made the lexer work out.
pub struct Grammar {
    pub(crate) parser: TokenParser,
    pub(crate) vocabulary: Arc<Vocabulary>,
}

impl Grammar {
    /// `source` is llguidance's list of grammars as JSON: `{"grammars": [{"name", "lark_grammar" or "json_schema"}]}`.
    ///
    /// # Errors
    /// What llguidance refuses, in its words, and what takes too long.
    pub fn compile(vocabulary: Arc<Vocabulary>, source: &[u8], limits: Limits) -> Result<Self> {
        if OVERDUE.load(Ordering::Relaxed) >= MAX_OVERDUE {
            bail!("Constraints are still being compiled that take too long; try again later");
        }
        let source = source.to_vec();
        let (send, receive) = mpsc::sync_channel(0);
        let worker = std::thread::Builder::new().name("grammar".into()).stack_size(STACK).spawn(move || {
            let result = guarded(|| Self::compile_here(vocabulary, &source, limits));
            if send.send(result).is_err() {
                OVERDUE.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        match receive.recv_timeout(Duration::from_millis(limits.milliseconds.into())) {
            Ok(result) => {
                let _ = worker.join();
                result
            }
            Err(_) => {
                // The channel has no room: `send` succeeds only where somebody still waits.
                OVERDUE.fetch_add(1, Ordering::Relaxed);
                drop(receive);
                bail!("time to compile must be at most {} ms", limits.milliseconds)
            }
        }
    }

    fn compile_here(vocabulary: Arc<Vocabulary>, source: &[u8], limits: Limits) -> Result<Self> {
        let grammar: TopLevelGrammar = serde_json::from_slice(source).map_err(|e| anyhow!("{e}"))?;
        let factory = &vocabulary.factory;
        let mut parser = factory.create_parser_from_init_ext(
            GrammarInit::Serialized(grammar),
            llguidance::Logger::new(0, 0),
            Default::default(),
            limits.parser(),
        )?;
        parser.start_without_prompt();
        Ok(Self { parser, vocabulary })
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.parser.parser.lexer_stats().num_bytes
    }
}
