//! Fuzz target: any bytes as a plan and steps must be rejected with a message or run. Start it with
//! `cargo +nightly fuzz run messages` (docs/CONTRIBUTING.md).
//!
//! An input is a list of messages: a plan, then steps. The length in bytes (u32) precedes each message.
#![no_main]

#[path = "../../tests/program/model.rs"]
#[allow(dead_code)] // the tests use the parts that this target does not
mod model;

use compy::simd::Isa;
use compy::model::Model;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

const OUTPUT: usize = 1 << 16;

/// Returns a model with the best instruction set of this CPU, and one with the scalar set.
fn models() -> &'static [Model; 2] {
    static MODELS: OnceLock<[Model; 2]> = OnceLock::new();
    MODELS.get_or_init(|| {
        let sets = Isa::available();
        [sets[0], sets[sets.len() - 1]].map(|isa| model::model(isa, 1))
    })
}

/// Splits the first message off `data`. Returns None if `data` is too short.
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
