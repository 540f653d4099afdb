//! Any bytes as a plan and steps must be rejected or run: `cargo +nightly fuzz run messages` (docs/CONTRIBUTING.md).
//!
//! An input is a list of messages, each behind its length in bytes (u32): a plan, then steps.
#![no_main]

#[path = "../../tests/program/model.rs"]
#[allow(dead_code)] // the tests use more of it
mod model;

use compy::simd::Isa;
use compy::model::Model;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

const OUTPUT: usize = 1 << 16;

/// A model with the best instruction set, and one with the scalar set.
fn models() -> &'static [Model; 2] {
    static MODELS: OnceLock<[Model; 2]> = OnceLock::new();
    MODELS.get_or_init(|| {
        let sets = Isa::available();
        [sets[0], sets[sets.len() - 1]].map(|isa| model::model(isa, 1))
    })
}

/// Splits off the first message.
fn message<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (message, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *data = rest;
    Some(message)
}

fuzz_target!(|data: &[u8]| {
    for model in models() {
        let mut data = data;
        let Some(plan) = message(&mut data) else { return };
        if model.compile(plan).is_err() {
            continue;
        }
        let mut output = vec![0; OUTPUT];
        while let Some(step) = message(&mut data) {
            let _ = model.step(step, &mut output);
        }
    }
});
