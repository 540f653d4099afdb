//! C functions that constrain a model's answers to a grammar. llguidance compiles the grammar and computes which tokens
//! may follow.
//!
//! These functions check all input and catch panics, so no grammar can end the process.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod compile;
pub mod ffi;
mod handles;
mod input;
mod lexers;
mod matcher;
mod memory;
mod text_masks;
mod vocabulary;
mod work;

pub use compile::{Grammar, Limits};
pub use matcher::{Forced, Matcher};
pub use vocabulary::Vocabulary;

use anyhow::{Result, anyhow};
use llguidance::panic_utils;
use std::panic::AssertUnwindSafe;

/// Runs `body` and reports a panic as an error. The panic's message is dropped, because llguidance and derivre may
/// quote an answer in it.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut panicked = true;
    let result = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let result = body();
        panicked = false;
        result
    }));
    if panicked { Err(anyhow!("A bug in the grammar library: a call panicked")) } else { result }
}
