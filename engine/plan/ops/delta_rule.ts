import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { deltaHeads, floats, forms, real, weights } from "../operands.ts";
import type { DeltaShape } from "../values.ts";

/**
 * Delta rule: updates the state S of each value head. S *= a, S += beta (v - S k) k^T, out = RMSNorm(S q; norm) *
 * silu(gate), with a = e^(decay * softplus(alpha + bias)) and a sigmoid on beta. `qkv` comes from `short_conv`.
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
 * Inputs of the delta rule: rows of queries, keys and values; a gate as wide as the values; alpha and beta, one number
 * per head each. If heads are in groups, alpha and beta are one value.
 */
export interface DeltaInputs {
  readonly qkv: Value;
  readonly gate: Value;
  readonly alpha: Value;
  readonly beta: Value;
}

/** Full names of the delta rule's tensors: two vectors with a number per value head, and a norm. */
export interface DeltaTensors {
  readonly decay: string;
  readonly bias: string;
  readonly norm: string;
}

/** Returns the delta rule's normed and gated output, and updates its state. */
export function deltaRule(
  b: PlanBuilder,
  inputs: DeltaInputs,
  tensors: DeltaTensors,
  heads: DeltaShape,
  eps: number,
): Value {
  const out = b.value("delta", inputs.qkv.rows, heads.valueHeads * heads.headDim);
  b.push(DELTA_RULE, {
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
