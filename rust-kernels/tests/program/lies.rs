//! Plans and steps with wrong values, made by hand.
use super::model::{NONE, Plan, buffer, model, steps, tensor};
use compy::model::Model;
use compy::simd::Isa;

/// Words of the longest answer to one of `steps`.
const OUTPUT: usize = 1 << 14;

fn run(model: &Model, plan: &Plan) -> Result<(), String> {
    run_steps(model, plan, &steps())
}

fn run_steps(model: &Model, plan: &Plan, steps: &[Vec<u8>]) -> Result<(), String> {
    model.compile(&plan.bytes()).map_err(|e| e.to_string())?;
    for step in steps {
        let mut output = vec![0; OUTPUT];
        model.step(step, &mut output).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[test]
fn unchanged_plan_runs_on_every_instruction_set() {
    for k in Isa::available() {
        for threads in [1, 3] {
            let model = model(k, threads);
            for kv_type in [0, 1] {
                assert_eq!(run(&model, &Plan::whole(kv_type)), Ok(()), "{}", k.name());
                assert_eq!(run(&model, &Plan::choosing(kv_type)), Ok(()), "{}", k.name());
            }
            assert_eq!(run_steps(&model, &Plan::texts(), &steps()[..1]), Ok(()), "{}", k.name());
        }
    }
}

/// Gives a buffer one row per row of logits instead of one per token, or the other way round.
fn with_other_rows(index: u32) -> Plan {
    let mut plan = Plan::whole(0);
    plan.buffers[index as usize][1] ^= 1;
    plan
}

#[test]
fn ops_reject_operands_without_a_row_per_token() {
    use buffer::*;
    let model = model(Isa::available()[0], 1);
    for (buffer, op, needed) in [
        (X, 0, "buffer 0 must have a row for each token of the step"),
        (ANGLES, 1, "buffer 1 must have a row for each token of the step"),
        (Q, 3, "operands must all have a row for each token, or all for each row of logits, or all for each pooled"),
        (ATTN, 5, "buffer 8 must have a row for each token of the step"),
        (QKV, 11, "operands must all have"),
        (LOGITS, 26, "operands must all have"),
    ] {
        let error = run(&model, &with_other_rows(buffer)).expect_err("a lie");
        assert!(error.starts_with(&format!("Op {op} of the plan: {needed}")), "{error}");
    }
}

/// Runs an op alone on buffers that all have a row for each row of logits.
#[test]
fn ops_over_tokens_reject_rows_of_logits() {
    let model = model(Isa::available()[0], 1);
    for op in [0, 1, 4, 5, 6, 7, 12, 13, 20, 21, 22, 28, 31, 32, 33, 35, 36, 38, 39, 40, 41, 42, 43, 44, 47] {
        let mut plan = Plan::whole(0);
        plan.ops = vec![plan.ops[op].clone()];
        plan.buffers.iter_mut().for_each(|b| b[1] = 1);
        let error = run(&model, &plan).expect_err("a lie");
        assert!(error.contains("must have a row for each token of the step"), "op {op}: {error}");
    }
}

#[test]
fn ops_reject_operands_with_different_row_counts() {
    let model = model(Isa::available()[0], 1);
    let mut plan = Plan::whole(0);
    plan.buffers[buffer::NORMED_QUANT as usize][1] = 1;
    let error = run(&model, &plan).expect_err("a lie");
    assert!(error.starts_with("Op 2 of the plan: operands must all have a row for each token"), "{error}");
}

#[test]
fn ops_reject_invalid_operands_and_name_them() {
    let model = model(Isa::available()[0], 1);
    type Lie = fn(&mut Plan);
    let lies: [(Lie, &str); 102] = [
        (|p| p.ops[0][1] = 99, "Op 0 of the plan: Tensor 99 is not a loaded matrix"),
        (|p| p.ops[0][1] = tensor::NORM, "Op 0 of the plan: Tensor 1 is not a loaded matrix"),
        (|p| p.ops[0][3] = buffer::NORMED_QUANT, "Op 0 of the plan: buffer 2 must hold floats (got Quant)"),
        (|p| p.ops[0][3] = 77, "Op 0 of the plan: buffer 77 is out of range 0..28"),
        (|p| p.buffers[1][2] = 32, "Op 1 of the plan: buffer 1 must have 16 columns (got 32)"),
        (|p| p.ops[2][6] = buffer::X, "Op 2 of the plan: buffer 0 must be of kind Quant (got Float)"),
        (|p| p.ops[2][5..8].fill(NONE), "Op 2 of the plan: outputs must have 64 columns (got [])"),
        (
            |p| p.ops[3][1] = NONE,
            "Op 3 of the plan: no operand has the kind of buffer that the kernels of tensor 4 read",
        ),
        (|p| p.ops[1][2] = 2, "Op 1 of the plan: table 2 of angles is out of range 0..2"),
        (|p| p.ops[1][2] = 0, "Op 1 of the plan: buffer 1 must have 6 columns (got 16)"),
        (|p| p.ops[4][2] = NONE, "Op 4 of the plan: keys and values must come together"),
        (|p| p.ops[4][8] = 3, "Op 4 of the plan: 3 heads over 2 of 16 in layer 1 do not fit the KV cache"),
        (|p| p.ops[5][3] = 0, "Op 5 of the plan: 4 heads over 2 of 16 in layer 0 do not fit the KV cache"),
        (|p| p.ops[5][11] = tensor::NORM, "Op 5 of the plan: Tensor 1 is not a loaded vector of 4 floats"),
        (
            |p| p.head[14] = 0,
            "Op 7 of the plan: layer 1's cache has a window of 3 positions, but the attention sees more",
        ),
        (|p| p.ops[12][7] = 3, "Op 12 of the plan: layer 3 has no recurrent state: there are 3"),
        (|p| p.ops[12][7] = 1, "Op 12 of the plan: a convolution of 128 channels does not fit the state of layer 1"),
        (|p| p.ops[12][9] = 24, "Op 12 of the plan: a convolution of 4 heads of 24, 1 of them keys, is not supported"),
        (|p| p.ops[12][10] = 3, "Op 12 of the plan: a convolution of 4 heads of 32, 3 of them keys, is not supported"),
        (|p| p.ops[12][2] = 1, "Op 12 of the plan: 128 channels from column 1 on do not fit a buffer of 128 columns"),
        (|p| p.ops[13][8] = 1, "Op 13 of the plan: 2 heads over 1 of 32 do not fit the state of layer 1"),
        (|p| p.ops[13][9] = 0, "Op 13 of the plan: recurrent heads: 2 over 0 of 32 are not supported"),
        (|p| p.ops[13][11] = 48, "Op 13 of the plan: recurrent heads: 2 over 1 of 48 are not supported"),
        (|p| p.head[21] = 16, "Op 13 of the plan: 2 heads over 1 of 32 do not fit the state of layer 0"),
        (|p| p.head[19] = 1 << 21, "sizes of a recurrent state must be at most 1048576 (got 2097152)"),
        (|p| p.head[24..27].fill(1 << 20), "6 recurrent states of 1152921504606850272 floats are too large for memory"),
        (|p| p.head[11] = 2, "The group of a layer's KV cache must be below 2 (got 2)"),
        (|p| p.ops[27][0] = 99, "Op 27 of the plan: unknown code 99"),
        (|p| p.ops[28][4] = 3, "Op 28 of the plan: a sequence cannot be pooled in the unknown way 3"),
        (|p| p.ops[28][5] = buffer::X, "Op 28 of the plan: buffer 0 must have a row for each pooled sequence"),
        (|p| p.ops[29][1] = buffer::X, "Op 29 of the plan: buffer 0 must have a row for each pooled sequence"),
        (
            |p| p.ops[2][5..8].copy_from_slice(&[buffer::POOLED, NONE, NONE]),
            "Op 2 of the plan: operands must all have a row for each token, or all for each row of logits, or all for each pooled sequence",
        ),
        (|p| p.ops[35][3] = 24, "Op 35 of the plan: 64 columns cannot be normed in groups of 24"),
        (|p| p.ops[35][3] = 32, "Op 35 of the plan: Tensor 9 is not a loaded vector of 32 floats"),
        (|p| p.ops[35][7] = buffer::ATTN, "Op 35 of the plan: buffer 8 cannot be added to itself"),
        (|p| p.ops[36][2] = 9, "Op 36 of the plan: unknown activation 9 of a gate"),
        (|p| p.ops[36][5] = buffer::X, "Op 36 of the plan: a product is either written or added"),
        (
            |p| p.ops[36][1] = buffer::MAMBA,
            "Op 36 of the plan: the number of gates must divide the 64 columns (got 98)",
        ),
        (|p| p.ops[37][4] = 61, "Op 37 of the plan: 4 columns from column 61 on do not fit buffer 0 of 64 columns"),
        (
            |p| {
                let mut other = p.ops[28].clone();
                other[4] = (other[4] + 1) % 3;
                p.ops.push(other);
            },
            "A plan may have one way to pool and one op that returns pooled rows (got 2 and 1 ops)",
        ),
        (
            |p| p.ops.truncate(29),
            "A plan may have one way to pool and one op that returns pooled rows (got 1 and 0 ops)",
        ),
        (|p| p.ops[20][2] = tensor::GATE_BIAS, "Op 20 of the plan: Tensor 26 is not a loaded vector of 4 floats"),
        (|p| p.ops[20][6] = tensor::GATE_BIAS, "Op 20 of the plan: Tensor 26 is not a loaded vector of 4 floats"),
        (|p| p.ops[20][10] = 5, "Op 20 of the plan: buffer 19 must have 5 columns (got 4)"),
        (|p| p.ops[20][11] = 5, "Op 20 of the plan: 5 of 4 experts cannot be chosen"),
        (|p| p.ops[20][11] = 1, "Op 20 of the plan: buffer 20 must have 2 columns (got 4)"),
        (|p| p.ops[20][7] = 3, "Op 20 of the plan: 2 of 4 experts cannot be chosen out of 1 of 3 groups"),
        (|p| p.ops[20][7] = 4, "Op 20 of the plan: 2 of 4 experts cannot be chosen out of 1 of 4 groups"),
        (|p| p.ops[20][8] = 0, "Op 20 of the plan: 2 of 4 experts cannot be chosen out of 0 of 2 groups"),
        (|p| p.ops[20][8] = 3, "Op 20 of the plan: 2 of 4 experts cannot be chosen out of 3 of 2 groups"),
        (|p| p.ops[20][4] = 2, "Op 20 of the plan: a flag must be 0 or 1 (got 2)"),
        (|p| p.ops[38][6] = tensor::GATE, "Op 38 of the plan: tensor 6 must be 128 x 64 (got 96 x 64)"),
        (|p| p.ops[38][8] = 5, "Op 38 of the plan: this activation needs a gate"),
        (|p| p.ops[21][4] = 1, "Op 21 of the plan: 2 of 1 experts cannot be chosen"),
        (|p| p.ops[21][6] = tensor::GATE, "Op 21 of the plan: tensor 6 must be 128 x 64 (got 96 x 64)"),
        (
            |p| p.ops[22][5] = buffer::ATTN_QUANT,
            "Op 22 of the plan: buffer 9 must have a row for each expert that a token chose",
        ),
        (
            |p| p.ops[8][3] = buffer::EXPERT_FFN,
            "Op 8 of the plan: buffer 21 has a row for each expert that a token chose, which this op cannot use",
        ),
        (|p| p.ops[30][3] = 3, "Op 30 of the plan: layer 3 has no recurrent state: there are 3"),
        (|p| p.ops[30][3] = 0, "Op 30 of the plan: the last 2 inputs of 64 channels do not fit the state of layer 0"),
        (|p| p.ops[30][4] = 1, "Op 30 of the plan: a gated convolution of 1 taps over 64 channels is not supported"),
        (|p| p.ops[30][1] = buffer::QKV, "Op 30 of the plan: buffer 11 must have 192 columns (got 128)"),
        (|p| p.ops[31][2] = 35, "Op 31 of the plan: 64 channels from column 35 on do not fit a buffer of 98 columns"),
        (|p| p.ops[32][5] = 0, "Op 32 of the plan: Mamba2 of 2 heads of 16 over 16 does not fit the state of layer 0"),
        (|p| p.ops[32][6] = 3, "Op 32 of the plan: Mamba2 of 3 heads of 16 over 16 does not fit the state of layer 2"),
        (|p| p.ops[32][7] = 8, "Op 32 of the plan: Mamba2 of 2 heads of 8 in 1 groups over 16 is not supported"),
        (|p| p.ops[32][8] = 0, "Op 32 of the plan: Mamba2 of 2 heads of 16 in 0 groups over 16 is not supported"),
        (|p| p.ops[32][9] = 512, "Op 32 of the plan: Mamba2 of 2 heads of 16 in 1 groups over 512 is not supported"),
        (|p| p.ops[32][1] = buffer::X, "Op 32 of the plan: buffer 0 must have 98 columns (got 64)"),
        (|p| p.ops[33][4] = 2, "Op 33 of the plan: 32 columns cannot be normed in 2 groups of a multiple of 32"),
        (|p| p.ops[33][2] = 67, "Op 33 of the plan: 32 columns from column 67 on do not fit a buffer of 98 columns"),
        (|p| p.ops[16][4] = tensor::NORM, "Op 16 of the plan: Tensor 1 is not a loaded vector of 96 floats"),
        (|p| p.ops[16][7] = 99, "Op 16 of the plan: unknown activation code 99"),
        (|p| p.ops[21][7] = tensor::GATE_BIAS, "Op 21 of the plan: Tensor 26 is not a loaded vector of 128 floats"),
        (|p| p.ops[21][10] = 99, "Op 21 of the plan: unknown activation code 99"),
        (
            |p| p.ops[22][7] = tensor::EXPERT_GATE_BIAS,
            "Op 22 of the plan: Tensor 27 is not a loaded vector of 256 floats",
        ),
        (|p| p.ops[34][5] = 5, "Op 34 of the plan: this activation needs a gate"),
        (|p| p.ops[39][2] = 97, "Op 39 of the plan: 32 columns from column 97 on do not fit a buffer of 128 columns"),
        (|p| p.ops[40][1] = 3, "Op 40 of the plan: there must be 4 streams (got 3)"),
        (|p| p.ops[40][3] = buffer::X, "Op 40 of the plan: buffer 0 cannot be two streams"),
        (|p| p.ops[40][11] = buffer::Q, "Op 40 of the plan: buffer 5 is also a stream that the op changes"),
        (|p| p.ops[41][9] = tensor::NORM, "Op 41 of the plan: Tensor 1 is not a loaded vector of 16 floats"),
        (|p| p.ops[42][2] = 17, "Op 42 of the plan: 1 to 16 buffers can be scaled to another's size (got 17)"),
        (|p| p.ops[42][3] = buffer::X, "Op 42 of the plan: buffer 0 cannot be two operands"),
        (|p| p.ops[43][4] = buffer::Q, "Op 43 of the plan: buffer 5 is both read and written"),
        (|p| p.ops[44][3] = 0, "Op 44 of the plan: 128 and 96 columns cannot be split into 0 heads"),
        (|p| p.ops[44][3] = 5, "Op 44 of the plan: 128 and 96 columns cannot be split into 5 heads"),
        (
            |p| p.ops[44][4] = 64,
            "Op 44 of the plan: heads of 64 and 48 columns cannot leave 64 columns out of the product",
        ),
        (
            |p| p.ops[44][4..6].copy_from_slice(&[48, 1]),
            "Op 44 of the plan: heads of 64 and 48 columns cannot leave 48 columns out of the product",
        ),
        (|p| p.ops[44][3] = 4, "Op 44 of the plan: a head's rows must be a multiple of 16 (got 24), of tensor 6"),
        (|p| p.ops[44][4] = 32, "Op 44 of the plan: tensor 6 must be 96 x 32 (got 96 x 64)"),
        (|p| p.ops[47][1] = buffer::NORMED_QUANT, "Op 47 of the plan: buffer 2 must hold floats (got Quant)"),
        (
            |p| p.ops[47][1] = buffer::ADAPTED,
            "Op 47 of the plan: buffer 27 must have a row for each token of the step, or for each expert that it chose",
        ),
        (|p| p.ops[46][1] = buffer::NORMED_QUANT, "Op 46 of the plan: buffer 2 must hold floats (got Quant)"),
        (
            |p| p.ops[46][5] = tensor::EXPERT_GATE,
            "Op 46 of the plan: no operand has the kind of buffer that the kernels of tensor 21 read",
        ),
        (
            |p| p.ops[46][6..8].copy_from_slice(&[NONE, buffer::EXPERT_FFN]),
            "Op 46 of the plan: adapters' products must be floats",
        ),
        (
            |p| p.ops[4][21] = 16,
            "Op 4 of the plan: values must start at a column below 16, or at 0 if they are normalized (got 16)",
        ),
        (
            |p| p.ops[4][21] = 8,
            "Op 4 of the plan: values must start at a column below 16, or at 0 if they are normalized (got 8)",
        ),
        (|p| p.head[0] = 1 << 20, "A step may have at most 65536 rows (got 1048576, 4 of them with logits)"),
        (|p| p.head[12] = 1 << 20, "KV heads and their dimension must be at most 65536 (got 1048576 of 16)"),
        (|p| p.head[13] = 24, "KV heads must be at least 1, their dimension a multiple of 16 (got 2 of 24)"),
        (|p| p.buffers[3][1] = 4, "A buffer with unknown kind of rows 4"),
        (
            |p| {
                p.buffers[21] = [0, 2, 24];
                p.ops[21][12..14].copy_from_slice(&[buffer::EXPERT_FFN, NONE]);
            },
            "Op 21 of the plan: an expert's rows must be a multiple of 16 (got 24), of tensor 21",
        ),
    ];
    for (lie, message) in lies {
        let mut plan = Plan::whole(0);
        lie(&mut plan);
        assert_eq!(run(&model, &plan), Err(message.into()));
    }
}

#[test]
fn choices_of_blocks_reject_invalid_operands_and_name_them() {
    let model = model(Isa::available()[0], 1);
    type Lie = fn(&mut Plan);
    let lies: [(Lie, &str); 10] = [
        (|p| p.ops[50][3] = 1, "Op 50 of the plan: 2 heads over 1 of 48 in layer 1 do not fit the KV cache"),
        (|p| p.head[11] = 0, "Op 50 of the plan: layer 0's cache must keep all positions"),
        (|p| p.ops[50][8] = buffer::SINGLE, "Op 50 of the plan: 1 columns cannot hold 2 lists of the same length"),
        (
            |p| p.ops[50][9] = 0,
            "Op 50 of the plan: blocks must have at least 1 position, and at most 1 are local (got 0 and 1)",
        ),
        (
            |p| p.ops[50][10] = 2,
            "Op 50 of the plan: blocks must have at least 1 position, and at most 1 are local (got 2 and 2)",
        ),
        (|p| p.ops[52][2] = buffer::X, "Op 52 of the plan: buffer 0 must have 2 columns (got 64)"),
        (
            |p| {
                p.ops.drain(..51);
                p.buffers[buffer::ALPHA as usize][1] = 1;
            },
            "Op 0 of the plan: buffer 13 must have a row for each token of the step",
        ),
        (|p| p.ops[51][14] = 0, "Op 51 of the plan: 2 columns cannot hold 1 or 2 lists of 0 blocks of 2 positions"),
        (|p| p.ops[51][14] = 3, "Op 51 of the plan: 2 columns cannot hold 1 or 2 lists of 3 blocks of 2 positions"),
        (|p| p.ops[51][15] = 0, "Op 51 of the plan: 2 columns cannot hold 1 or 2 lists of 1 blocks of 0 positions"),
    ];
    for (lie, message) in lies {
        let mut plan = Plan::choosing(0);
        lie(&mut plan);
        assert_eq!(run(&model, &plan), Err(message.into()));
    }
}

#[test]
fn text_ops_reject_invalid_operands_and_name_them() {
    use super::model::text_buffer::*;
    let model = model(Isa::available()[0], 1);
    type Lie = fn(&mut Plan);
    let lies: [(Lie, &str); 28] = [
        (|p| p.ops[1][2] = tensor::DOWN, "Op 1 of the plan: tensor 8 must have rows of 64 columns (got 64 x 96)"),
        (|p| p.ops[1][3] = tensor::NORM, "Op 1 of the plan: Tensor 1 is not a loaded matrix"),
        (
            |p| p.ops[1][2] = tensor::ROUTER,
            "Sequence 0 must be in one step, with at most 4 tokens (got 5 rows after 0)",
        ),
        (|p| p.ops[3][2] = tensor::HEAD_NORM, "Op 3 of the plan: Tensor 9 is not a loaded vector of 64 floats"),
        (|p| p.ops[3][3] = tensor::GATE_BIAS, "Op 3 of the plan: Tensor 26 is not a loaded vector of 64 floats"),
        (|p| p.ops[3][4] = 0, "Op 3 of the plan: 64 columns cannot be normed in 0 groups"),
        (|p| p.ops[3][4] = 3, "Op 3 of the plan: 64 columns cannot be normed in 3 groups"),
        (|p| p.ops[3][6..9].fill(NONE), "Op 3 of the plan: outputs must have 64 columns (got [])"),
        (
            |p| p.ops[5][2] = 1,
            "Op 5 of the plan: 4 heads of 16 columns, 16 columns apart from column 1 on, do not fit in rows of 64 columns",
        ),
        (
            |p| p.ops[5][3] = 8,
            "Op 5 of the plan: 4 heads of 16 columns, 8 columns apart from column 0 on, do not fit in rows of 64 columns",
        ),
        (
            |p| p.ops[5][3] = u32::MAX,
            "Op 5 of the plan: 4 heads of 16 columns, 4294967295 columns apart from column 0 on, do not fit in rows of 64 columns",
        ),
        (
            |p| p.ops[5][4] = 0,
            "Op 5 of the plan: 0 heads of 16 columns, 16 columns apart from column 0 on, do not fit in rows of 64 columns",
        ),
        (
            |p| p.ops[5][4] = u32::MAX,
            "Op 5 of the plan: 4294967295 heads of 16 columns, 16 columns apart from column 0 on, do not fit in rows of 64 columns",
        ),
        (
            |p| p.ops[5][5] = 0,
            "Op 5 of the plan: heads must have at least 1 dimension, and at most the 64 columns of their rows (got 0)",
        ),
        (|p| p.ops[5][6] = NONE, "Op 5 of the plan: 16 dimensions cannot be rotated without a table"),
        (|p| p.ops[5][6] = Q, "Op 5 of the plan: buffer 5 must have 16 columns (got 64)"),
        (
            |p| {
                p.ops[5][6] = X;
                p.ops[5][8] = 64;
            },
            "Op 5 of the plan: rotated dimensions must be an even number of at most 16 (got 64)",
        ),
        (|p| p.ops[5][7] = tensor::NORM, "Op 5 of the plan: Tensor 1 is not a loaded vector of 16 floats"),
        (
            |p| p.ops[7][8] = 33,
            "Op 7 of the plan: 2 heads of 16 columns, 16 columns apart from column 33 on, do not fit in rows of 64 columns",
        ),
        (
            |p| p.ops[7][12] = 0,
            "Op 7 of the plan: 0 heads of 16 columns, 16 columns apart from column 0 on, do not fit in rows of 64 columns",
        ),
        (
            |p| {
                p.ops[7][8] = 0;
                p.ops[7][12] = 3;
            },
            "Op 7 of the plan: 4 heads must be a multiple of the 3 KV heads, and at most 64 for each",
        ),
        (|p| p.ops[7][13] = 12, "Op 7 of the plan: heads must have a multiple of 8 dimensions (got 12)"),
        (|p| p.ops[7][11] = 2, "Op 7 of the plan: buffer 7 must have 32 columns (got 64)"),
        (|p| p.ops[7][16] = 2, "Op 7 of the plan: a flag must be 0 or 1 (got 2)"),
        (
            |p| {
                p.ops[7][17] = 1;
                p.ops[7].push(0.5f32.to_bits());
            },
            "Op 7 of the plan: slopes must be 4 numbers from 0 to 1, one per head, or none (got [0.5])",
        ),
        (|p| p.ops[7][10] = POOLED, "Op 7 of the plan: buffer 8 must have a row for each token of the step"),
        (|p| p.buffers[0][1] = 1, "Op 0 of the plan: buffer 0 must have a row for each token of the step"),
        (
            |p| p.buffers[2][1] = 1,
            "Op 3 of the plan: operands must all have a row for each token, or all for each row of logits, or all for each pooled sequence",
        ),
    ];
    for (lie, message) in lies {
        let mut plan = Plan::texts();
        lie(&mut plan);
        assert_eq!(run_steps(&model, &plan, &steps()[..1]), Err(message.into()));
    }
    let error = run(&model, &Plan::texts());
    assert_eq!(error, Err("Sequence 0 must be in one step, with at most 96 tokens (got 1 rows after 40)".into()));
}

#[test]
fn step_rejects_block_tables_that_miss_the_window_or_the_last_row() {
    let model = model(Isa::available()[0], 1);
    model.compile(&Plan::whole(0).bytes()).expect("a plan");
    let mut output = vec![0; OUTPUT];
    // The tables of the second step's first sequence, which has 40 tokens before its row, start at word 14.
    let mut refused = |lie: &[(usize, u32)]| {
        let mut step = steps()[1].clone();
        for (word, value) in lie {
            step[4 * word..][..4].copy_from_slice(&value.to_le_bytes());
        }
        model.step(&step, &mut output).expect_err("a lie").to_string()
    };
    assert_eq!(refused(&[(14, 2)]), "Sequence 0: group 0 has KV blocks 2..4, but 41 tokens need 1..2");
    assert_eq!(refused(&[(18, 1)]), "Sequence 0: group 1 has KV blocks 1..4, but 41 tokens need 0..2");
    assert_eq!(refused(&[(16, 32)]), "Sequence 0: KV block 32 is out of range 0..32");
}

#[test]
fn step_rejects_invalid_adapters() {
    let (model, plan) = (model(Isa::available()[0], 1), Plan::whole(0));
    let [first, second] = steps();
    let one = 1f32.to_bits();
    let with =
        |step: &[u8], words: &[u32]| [step, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>()].concat();
    let before = &second[..second.len() - 4 * 8];
    let run = |plan: &Plan, words: &[u32]| run_steps(&model, plan, &[first.clone(), with(before, words)]);
    assert_eq!(run(&plan, &[]), Ok(()));
    assert_eq!(run(&plan, &[0, 2, 1, one, 3, one]), Ok(()));
    let wrong = "adapters must be in ascending order and below 4, with finite factors";
    for (words, message) in [
        (&[0, 1, 4, one][..], wrong),
        (&[0, 2, 1, one, 1, one], wrong),
        (&[0, 1, 1, f32::NAN.to_bits()], wrong),
        (&[0, 3, 0, one, 1, one, 2, one], "A sequence may use at most 2 adapters (got 3)"),
    ] {
        let error = run(&plan, words).expect_err("wrong adapters");
        assert!(error.starts_with(message), "{error}");
    }
    let none = Plan { ops: plan.ops[..45].to_vec(), ..plan };
    let error = run(&none, &[0, 1, 1, one]).expect_err("no adapters");
    assert_eq!(error, "Adapters need a plan that has some");
}
