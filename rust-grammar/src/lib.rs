//! Constraints on answers, behind C exports: llguidance compiles them, and says which tokens may come next.
//!
//! All that comes in is checked, panics are caught at the border, and nothing that a constraint says can end the process.
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

/// Runs what must not panic. What llguidance or derivre panics with may quote an answer, so only the fact is told.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut panicked = true;
    let result = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let result = body();
        panicked = false;
        result
    }));
    if panicked { Err(anyhow!("A bug in the grammar library: a call panicked")) } else { result }
}
