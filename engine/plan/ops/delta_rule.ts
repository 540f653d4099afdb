import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { deltaHeads, floats, forms, real, weights } from "../operands.ts";
import type { DeltaShape } from "../plan.ts";

/**
 * For each value head, with a state S: S *= a, S += beta (v - S k) k^T, out = RMSNorm(S q; norm) * silu(gate), where
 * a = e^(decay * softplus(alpha + bias)) and beta goes through a sigmoid. `qkv` is as `short_conv` left it.
 */
export const DELTA_RULE = opKind({
  op: "delta_rule",
  code: 10,
  operands: {
    qkv: floats("read"),
    gate: floats("read"),
    alpha: floats("read"),
    beta: floats("read"),
    decay: weights,
    bias: weights,
    norm: weights,
    heads: deltaHeads,
    eps: real,
    out: forms("write", 3),
  },
  mixer: () => "Gated DeltaNet",
  text: (op, t) => {
    const operands = `${t.buffers(op.qkv, op.gate, op.alpha, op.beta)}, ${
      t.tensors(op.decay, op.bias, op.norm)
    }`;
    const groups = op.heads.inGroups ? ", heads in groups" : "";
    return `${t.forms(op.out)} = delta_rule(${operands}; state ${op.heads.layer}${groups}, eps ${op.eps})`;
  },
});

/**
 * Activations that the delta rule reads: rows of queries, keys and values; a gate as wide as the values; a number a head, twice, which
 * are one value where heads stand in groups.
 */
export interface DeltaInputs {
  readonly qkv: Value;
  readonly gate: Value;
  readonly alpha: Value;
  readonly beta: Value;
}

/** Whole names of the delta rule's tensors: a number a value head, twice, and a norm. */
export interface DeltaTensors {
  readonly decay: string;
  readonly bias: string;
  readonly norm: string;
}

/** Reads the state that it carries, and norms and gates what it has read. */
export function deltaRule(
  b: PlanBuilder,
  inputs: DeltaInputs,
  tensors: DeltaTensors,
  heads: DeltaShape,
  eps: number,
): Value {
  const out = b.value("delta", inputs.qkv.rows, heads.valueHeads * heads.headDim);
  b.push({
    op: "delta_rule",
    qkv: b.asFloat(inputs.qkv),
    gate: b.asFloat(inputs.gate),
    alpha: b.asFloat(inputs.alpha),
    beta: b.asFloat(inputs.beta),
    decay: b.vector(tensors.decay, heads.valueHeads),
    bias: b.vector(tensors.bias, heads.valueHeads),
    norm: b.vector(tensors.norm, heads.headDim),
    heads,
    eps,
    out: out.forms,
  });
  return out;
}
