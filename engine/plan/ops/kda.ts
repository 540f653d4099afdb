import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { deltaHeads, floats, forms, real, weights } from "../operands.ts";
import type { DeltaShape } from "../values.ts";

/**
 * Kimi Delta Attention: the delta rule with a decay for each key dimension. It updates the state S of each head.
 * S *= e^g, S += beta (v - S k) k^T, out = RMSNorm(S q; norm) * sigmoid(gate), with a sigmoid on beta. Without a bound,
 * g = decay * softplus(alpha + bias); with one, g = bound * sigmoid(decay * (alpha + bias)). `qkv` comes from
 * `short_conv`.
 */
export const KDA = opKind({
  op: "kda",
  code: 47,
  operands: {
    qkv: floats("read"),
    gate: floats("read"),
    alpha: floats("read"),
    beta: floats("read"),
    decay: weights,
    bias: weights,
    norm: weights,
    /** Lower bound of g; 0: none. */
    bound: real,
    heads: deltaHeads,
    eps: real,
    out: forms("write", 3),
  },
  mixer: () => "Kimi Delta Attention",
  text: (op, t) => {
    const operands = `${t.buffers(op.qkv, op.gate, op.alpha, op.beta)}, ${
      t.tensors(op.decay, op.bias, op.norm)
    }`;
    const bound = op.bound === 0 ? "" : `, bound ${op.bound}`;
    return `${t.forms(op.out)} = kda(${operands}; state ${op.heads.layer}${bound}, eps ${op.eps})`;
  },
});

/** Inputs of Kimi Delta Attention: rows of queries, keys and values; a gate and alpha as wide as the values; a beta per head. */
export interface KdaInputs {
  readonly qkv: Value;
  readonly gate: Value;
  readonly alpha: Value;
  readonly beta: Value;
}

/** Full names of the tensors: a decay per head, a bias per key dimension of each head, and a norm. */
export interface KdaTensors {
  readonly decay: string;
  readonly bias: string;
  readonly norm: string;
}

/** Returns the normed and gated output of Kimi Delta Attention, and updates its state. `bound` limits the decay. */
export function kda(
  b: PlanBuilder,
  inputs: KdaInputs,
  tensors: KdaTensors,
  heads: DeltaShape,
  { eps, bound = 0 }: { readonly eps: number; readonly bound?: number },
): Value {
  const inner = heads.valueHeads * heads.headDim;
  const out = b.value("kda", inputs.qkv.rows, inner);
  b.push(KDA, {
    qkv: b.asFloat(inputs.qkv),
    gate: b.asFloat(inputs.gate),
    alpha: b.asFloat(inputs.alpha),
    beta: b.asFloat(inputs.beta),
    decay: b.vectorOf(tensors.decay, heads.valueHeads),
    bias: b.vector(tensors.bias, inner),
    norm: b.vector(tensors.norm, heads.headDim),
    bound,
    heads,
    eps,
    out: out.forms,
  });
  return out;
}
