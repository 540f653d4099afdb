//! Tests copies of KV blocks and recurrent states between models, and between instruction sets with bit-identical
//! results.
use super::model::{Plan, model, steps};
use compy::model::Model;
use compy::simd::Isa;

/// Bytes for each type of cache: of a block of the first group, of a block of the second group, and of a slot.
const BYTES: [[usize; 3]; 3] =
    [[2 * 3136, 2 * 2176, 4 * 3296], [2 * 1664, 2 * 1152, 4 * 3296], [1664 + 1152, 1664 + 1152, 4 * 3296]];

/// Returns the blocks and slots that the second step of `steps` reads, as words.
fn held() -> Vec<u8> {
    message(&[(0, 4), (0, 3), (0, 5), (1, 2), (1, 5), (1, 1), (1, 0)], &[0, 1])
}

fn message(blocks: &[(u32, u32)], slots: &[u32]) -> Vec<u8> {
    let counts = [blocks.len() as u32, slots.len() as u32];
    let pairs = blocks.iter().flat_map(|&(group, block)| [group, block]);
    counts.into_iter().chain(pairs).chain(slots.iter().copied()).flat_map(u32::to_le_bytes).collect()
}

fn compiled(isa: Isa, kv_type: u32) -> Model {
    let model = model(isa, 1);
    model.compile(&Plan::whole(kv_type).without_tallies().bytes()).expect("a plan");
    model
}

fn step(model: &Model, step: &[u8]) -> Vec<u8> {
    let mut output = vec![0; 4096];
    let n = model.step(step, &mut output).expect("a step").expect("not stopped");
    output.truncate(n);
    output
}

#[test]
fn model_continues_bit_identically_from_a_copied_cache() {
    let [first, second] = steps();
    for isa in Isa::available() {
        for kv_type in 0..3 {
            let [block, other, slot] = BYTES[kv_type as usize];
            let bytes = 3 * block + 4 * other + 2 * slot;
            let (one, two) = (compiled(isa, kv_type), compiled(isa, kv_type));
            step(&one, &first);
            let mut copy = vec![0; bytes + 7];
            assert_eq!(one.read_cache(&held(), &mut copy).expect("a copy"), bytes);
            copy.truncate(bytes);
            assert_ne!(step(&two, &second), step(&one, &second), "nothing was there to go on from");
            one.write_cache(&[held(), copy.clone()].concat()).expect("a copy");
            two.write_cache(&[held(), copy.clone()].concat()).expect("a copy");
            let mut again = vec![0; bytes];
            two.read_cache(&held(), &mut again).expect("a copy");
            assert!(again == copy, "{}", isa.name());
            assert_eq!(step(&two, &second), step(&one, &second), "{}", isa.name());
        }
    }
}

#[test]
fn instruction_sets_with_other_byte_products_give_the_same_answers() {
    for sets in [["avx512-amx", "avx512-vnni"], ["neon-i8mm", "neon-dotprod"]] {
        let [Ok(extension), Ok(base)] = sets.map(Isa::detect) else { continue };
        for kv_type in [0, 1] {
            let models = [compiled(extension, kv_type), compiled(base, kv_type)];
            for message in steps() {
                assert_eq!(step(&models[0], &message), step(&models[1], &message), "{sets:?}");
            }
        }
    }
}

#[test]
fn write_cache_leaves_other_blocks_unchanged() {
    let model = compiled(Isa::available()[0], 0);
    step(&model, &steps()[0]);
    let all = message(&(0..32).map(|block| (0, block)).collect::<Vec<_>>(), &[0, 1, 2, 3, 4, 5]);
    let [block, _, slot] = BYTES[0];
    let read = || {
        let mut bytes = vec![0; 32 * block + 6 * slot];
        model.read_cache(&all, &mut bytes).expect("a copy");
        bytes
    };
    let mut wanted = read();
    wanted[7 * block..8 * block].fill(9);
    wanted[32 * block + 2 * slot..32 * block + 3 * slot].fill(9);
    model.write_cache(&[message(&[(0, 7)], &[2]), vec![9; block + slot]].concat()).expect("a copy");
    assert!(read() == wanted);
}

#[test]
fn read_and_write_cache_reject_unknown_blocks_and_sizes() {
    let [block, ..] = BYTES[0];
    let unready = model(Isa::available()[0], 1);
    let error = unready.read_cache(&message(&[(0, 0)], &[]), &mut []).expect_err("no plan");
    assert_eq!(error.to_string(), "No plan is compiled");
    let model = compiled(Isa::available()[0], 0);
    for (words, expected) in [
        (message(&[(2, 0)], &[]), "The group of a KV block must be below 2 (got 2)"),
        (message(&[(0, 32)], &[]), "A KV block must be below 32 (got 32)"),
        (message(&[(1, u32::MAX)], &[]), "A KV block must be below 32"),
        (message(&[], &[6]), "A slot of recurrent state must be below 6 (got 6)"),
        (message(&[(0, 0)], &[])[..12].to_vec(), "A message ends too early"),
        ([u32::MAX; 3].into_iter().flat_map(u32::to_le_bytes).collect(), "A message ends too early"),
    ] {
        for result in [model.read_cache(&words, &mut [0; 1 << 16]).map(|_| ()), model.write_cache(&words)] {
            let error = result.expect_err("a lie").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
    let words = message(&[(0, 1)], &[]);
    let error = model.read_cache(&words, &mut vec![0; block - 1]).expect_err("no room");
    assert!(error.to_string().ends_with(&format!("do not fit an output of {}", block - 1)), "{error}");
    let error = model.read_cache(&[words.clone(), vec![0]].concat(), &mut vec![0; block]).expect_err("too long");
    assert_eq!(error.to_string(), "The message has 1 bytes behind its last word");
    for bytes in [block - 1, block + 1] {
        let error = model.write_cache(&[words.clone(), vec![0; bytes]].concat()).expect_err("another size");
        assert_eq!(error.to_string(), format!("KV blocks and states have {block} bytes (got {bytes})"));
    }
}
