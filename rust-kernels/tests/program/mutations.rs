//! Tests plans and steps with randomly changed words: each is rejected or runs, and none ends the process. The fuzz
//! target (fuzz/) does the same endlessly.
use super::model::{Plan, model, steps};
use compy::model::Model;
use compy::simd::Isa;

const MUTANTS: usize = 4000;

/// Random numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as usize % n
    }

    /// Changes up to three words of a message, or truncates it.
    fn mutate(&mut self, message: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            let words = message.len() / 4;
            let at = 4 * self.below(words);
            let old = u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"));
            let new = match self.below(8) {
                0 => old.wrapping_add(1),
                1 => old.wrapping_sub(1),
                2 => u32::MAX,
                3 => 1 << self.below(32),
                4 => old ^ 1 << self.below(32),
                5 => self.below(1 << 16) as u32,
                _ => self.below(32) as u32,
            };
            match self.below(40) {
                0 => message.truncate(at.max(4)),
                1 => drop(message.drain(at..at + 4)),
                _ => message[at..at + 4].copy_from_slice(&new.to_le_bytes()),
            }
        }
    }
}

/// Returns whether the plan was accepted, and how many steps ran.
fn run(model: &Model, plan: &[u8], steps: &[Vec<u8>]) -> (bool, usize) {
    if model.compile(plan).is_err() {
        return (false, 0);
    }
    let mut output = vec![0; 1 << 16];
    (true, steps.iter().filter(|step| model.step(step, &mut output).is_ok()).count())
}

#[test]
fn mutated_messages_are_rejected_or_run() {
    for (seed, k) in Isa::available().into_iter().enumerate() {
        let (model, mut random) = (model(k, 1 + seed % 2), Random(seed as u64));
        let (mut plans, mut taken) = (0, 0);
        for i in 0..MUTANTS {
            let plan = match i % 8 {
                3 => Plan::texts(),
                5 => Plan::choosing(i as u32 / 8 % 2),
                7 => Plan::drafting(),
                _ => Plan::whole(i as u32 % 2),
            };
            let (mut plan, mut steps) = (plan.bytes(), steps());
            if i % 3 > 0 {
                random.mutate(&mut plan);
            }
            if i % 3 < 2 {
                steps.iter_mut().for_each(|step| random.mutate(step));
            }
            let (plan, count) = run(&model, &plan, &steps);
            plans += usize::from(plan);
            taken += count;
        }
        // The test is only useful if enough of the changed messages pass decoding.
        assert!(plans > MUTANTS / 3 && taken > MUTANTS / 9, "{}: {plans} plans and {taken} steps ran", k.name());
    }
}
