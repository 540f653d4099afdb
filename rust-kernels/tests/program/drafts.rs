//! Rows joined with those of the previous tokens, across steps; and drafts, which continue from rows of the previous
//! step.
use super::model::{NONE, Plan, draft_buffer, model};
use compy::model::Model;
use compy::simd::Isa;

const ONE: u32 = 0x3f80_0000;
/// Words of an answer with three candidates.
const ANSWER: usize = 3 + 3 * 3;
const COLUMNS: usize = 64;
/// Two block tables of one block.
const TABLES: [u32; 6] = [0, 1, 2, 0, 1, 3];

fn compiled(plan: &Plan) -> Model {
    let model = model(Isa::available()[0], 2);
    model.compile(&plan.bytes()).expect("a plan");
    model
}

/// Rows of one sequence, with logits for all of them, or with its last row pooled.
fn step(tokens: &[u32], cached: u32, state: &[u32], pools: bool) -> Vec<u8> {
    let rows = tokens.len() as u32;
    let mut words = vec![rows, 1, if pools { 0 } else { rows }, u32::from(pools)];
    words.extend(tokens);
    let (slots, saves) = state.split_at(3);
    words.extend([0, rows, cached].iter().chain(slots).chain(&[0, 0]).chain(saves).chain(&TABLES));
    if pools {
        words.push(0);
    } else {
        words.extend((0..rows).flat_map(|row| [row, 3, ONE, 0, 0, 0, 0, 0, 0, 0, 0]));
    }
    words.push(0); // no given rows
    bytes(&words)
}

/// One row per token, each in its own sequence, continuing from rows `from`.
fn draft(tokens: &[u32], from: &[u32]) -> Vec<u8> {
    let rows = tokens.len() as u32;
    let mut words = vec![rows, rows, rows, NONE];
    words.extend(tokens.iter().chain(from));
    for row in 0..rows {
        words.extend([row, 1, 5, NONE, NONE, 0, 0, 0].iter().chain(&TABLES));
    }
    words.extend((0..rows).flat_map(|row| [row, 3, ONE, 0, 0, 0, 0, 0, 0, 0, 0]));
    words.push(0);
    bytes(&words)
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn run(model: &Model, step: &[u8]) -> Result<Vec<u32>, String> {
    let mut output = vec![0; 1 << 14];
    let written = model.step(step, &mut output).map_err(|e| e.to_string())?.expect("nobody stops it");
    Ok(output[..written].as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

#[test]
fn shift_gives_each_row_the_previous_one_for_every_split_into_steps() {
    let model = compiled(&Plan::drafting());
    let pooled =
        |tokens: &[u32], cached, state: &[u32]| run(&model, &step(tokens, cached, state, true)).expect("a step");
    let alone: Vec<_> = (1..=4).map(|token| pooled(&[token], 0, &[NONE, 0, 0])[..COLUMNS].to_vec()).collect();
    let zeros = vec![0; COLUMNS];
    assert_eq!(pooled(&[1], 0, &[NONE, 0, 0])[COLUMNS..], zeros);
    assert_eq!(pooled(&[1, 2, 3], 0, &[NONE, 0, 1, 1, 5]), [&alone[2][..], &alone[1]].concat());
    assert_eq!(pooled(&[4], 3, &[0, 0, 0]), [&alone[3][..], &alone[2]].concat());
    // Continues from the state saved after the first row.
    assert_eq!(pooled(&[3], 1, &[5, 1, 0]), [&alone[2][..], &alone[0]].concat());
}

#[test]
fn draft_continues_from_the_previous_step_and_from_an_earlier_draft() {
    let model = compiled(&Plan::drafting());
    let main = run(&model, &step(&[1, 2, 3], 0, &[NONE, 0, 0], false)).expect("a step");
    let [first, second, third] = [0, 1, 2].map(|row| &main[row * ANSWER..][..ANSWER]);
    let drafted = run(&model, &draft(&[3, 1], &[2, 0])).expect("a draft");
    assert_eq!(drafted, [third, first].concat());
    let drafted = run(&model, &draft(&[2, 2, 2], &[0, 1, 2])).expect("a draft");
    assert_eq!(drafted, [first, second, third].concat());
    let drafted = run(&model, &draft(&[1], &[1])).expect("a draft");
    assert_eq!(drafted, second);
}

#[test]
fn step_rejects_invalid_drafts() {
    let model = compiled(&Plan::drafting());
    let twice = "A draft continues from row 1, which is out of range 0..8 or taken twice";
    assert_eq!(run(&model, &draft(&[1, 2], &[1, 1])), Err(twice.into()));
    let beyond = "A draft continues from row 8, which is out of range 0..8 or taken twice";
    assert_eq!(run(&model, &draft(&[1], &[8])), Err(beyond.into()));
    let mut stateful = draft(&[1], &[0]);
    stateful[4 * 10..][..4].copy_from_slice(&[0; 4]); // the slot that it writes
    let error = run(&model, &stateful).expect_err("a lie");
    assert_eq!(error, "Sequence 0: a draft, or a model without recurrent state, must not name slots");
    let other = compiled(&Plan::whole(0));
    assert_eq!(run(&other, &draft(&[1], &[0])), Err("A draft needs a plan with draft ops".into()));
}

#[test]
fn compile_rejects_plans_with_invalid_drafts() {
    use draft_buffer::*;
    type Lie = (fn(&mut Plan), &'static str);
    let lies: [Lie; 7] = [
        (|p| p.ops[0] = vec![32, X, X], "Op 0 of the plan: only a draft keeps rows"),
        (|p| p.ops.push(vec![31, X, RECALLED]), "Op 14 of the plan: a plan may have one draft"),
        (|p| p.ops.push(vec![29, X, 1, BEFORE]), "Op 14 of the plan: a draft carries no recurrent state"),
        (|p| p.ops.push(vec![44, X, 0]), "Op 14 of the plan: a draft returns no tallies"),
        (|p| p.ops[1][2] = 0, "Op 1 of the plan: the last 1 inputs of 64 channels do not fit the state of layer 0"),
        (|p| p.ops[2][3] = X, "Op 2 of the plan: buffer 0 must have 128 columns (got 64)"),
        (|p| p.ops[13][2] = JOINED, "Op 13 of the plan: buffer 2 must have 64 columns (got 128)"),
    ];
    let model = model(Isa::available()[0], 1);
    for (lie, message) in lies {
        let mut plan = Plan::drafting();
        lie(&mut plan);
        assert_eq!(model.compile(&plan.bytes()).map_err(|e| e.to_string()), Err(message.into()));
    }
}
