/** Recurrent layers of mixed_model.ts's models: Gated DeltaNet with any heads, and a float64 reference. */
import type { PlanBuilder, Value } from "../engine/plan/builder.ts";
import { deltaRule } from "../engine/plan/ops/delta_rule.ts";
import { linear } from "../engine/plan/ops/matmul.ts";
import { convolveHeads } from "../engine/plan/ops/short_conv.ts";
import { CONV_TAPS, deltaState } from "../engine/plan/plan.ts";

export interface DeltaHeads {
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly headDim: number;
}

type Name = (tensor: string) => string;
type Row = Float64Array;

const channelsOf = ({ keyHeads, valueHeads, headDim }: DeltaHeads) => (2 * keyHeads + valueHeads) * headDim;

/** Adds the tensors of a recurrent layer: name, shape, mean. */
export function addDelta(
  add: (name: string, shape: number[], mean?: number) => void,
  name: Name,
  heads: DeltaHeads,
  embedding: number,
): void {
  const inner = heads.valueHeads * heads.headDim;
  add(name("attn_qkv"), [embedding, channelsOf(heads)]);
  add(name("attn_gate"), [embedding, inner]);
  for (const number of ["ssm_alpha", "ssm_beta"]) add(name(number), [embedding, heads.valueHeads]);
  add(name("ssm_conv1d"), [CONV_TAPS, channelsOf(heads)]);
  add(name("ssm_a"), [heads.valueHeads], -1);
  add(name("ssm_dt"), [heads.valueHeads], 0.5);
  add(name("ssm_norm"), [heads.headDim], 1);
  add(name("ssm_out"), [inner, embedding]);
}

/** Returns the layer's output for normed rows, before `ssm_out`. */
export function mixDelta(b: PlanBuilder, input: Value, heads: DeltaHeads, name: Name, eps: number): Value {
  const { valueHeads, headDim } = heads;
  const [qkv, gate, alpha, beta] = linear(b, input, [
    { name: name("attn_qkv"), rows: channelsOf(heads) },
    { name: name("attn_gate"), rows: valueHeads * headDim },
    { name: name("ssm_alpha"), rows: valueHeads },
    { name: name("ssm_beta"), rows: valueHeads },
  ]);
  const shape = { layer: b.stateLayer(deltaState(heads)), ...heads };
  convolveHeads(b, qkv, name("ssm_conv1d"), shape, eps);
  const [decay, bias, norm] = ["ssm_a", "ssm_dt", "ssm_norm"].map((tensor) => `${name(tensor)}.weight`);
  return deltaRule(b, { qkv, gate, alpha, beta }, { decay, bias, norm }, shape, eps);
}

/** Returns the layer's output computed in float64. */
export function exactDelta(
  input: readonly Row[],
  { keyHeads, valueHeads, headDim }: DeltaHeads,
  get: (tensor: string) => Float32Array,
  eps: number,
): Row[] {
  const project = (tensor: string) => input.map((row) => multiply(get(tensor), row));
  const [qkv, gates, alphas, betas] = ["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"].map(project);
  const [taps, decay, bias, norm] = ["ssm_conv1d", "ssm_a", "ssm_dt", "ssm_norm"].map(get);
  const convolved = qkv.map((row, t) =>
    row.map((_, c) => {
      let sum = 0;
      for (let tap = 0; tap < CONV_TAPS; tap++) {
        sum += taps[c * CONV_TAPS + tap] * (qkv[t - CONV_TAPS + 1 + tap]?.[c] ?? 0);
      }
      return silu(sum);
    })
  );
  const states = Array.from({ length: valueHeads }, () => new Float64Array(headDim * headDim)); // [value][key]
  const unit = (row: Row) => row.map((x) => x / Math.max(Math.sqrt(dot(row, row)), eps));
  return convolved.map((row, t) => {
    const head = (h: number) => row.subarray(h * headDim, (h + 1) * headDim);
    const out = states.flatMap((state, h) => {
      const q = unit(head(h % keyHeads)).map((x) => x / Math.sqrt(headDim));
      const k = unit(head(keyHeads + h % keyHeads));
      const v = head(2 * keyHeads + h);
      const keep = Math.exp(decay[h] * Math.log1p(Math.exp(alphas[t][h] + bias[h])));
      const write = sigmoid(betas[t][h]);
      const read = v.map((value, i) => {
        const s = state.subarray(i * headDim, (i + 1) * headDim);
        s.forEach((old, j) => s[j] = keep * old);
        const update = write * (value - dot(s, k));
        s.forEach((old, j) => s[j] = old + update * k[j]);
        return dot(s, q);
      });
      const scale = 1 / Math.sqrt(dot(read, read) / headDim + eps);
      return Array.from(read, (x, i) => x * scale * norm[i] * silu(gates[t][h * headDim + i]));
    });
    return Float64Array.from(out);
  });
}

export function multiply(matrix: Float32Array, row: Row): Row {
  return Float64Array.from({ length: matrix.length / row.length }, (_, r) => {
    let sum = 0;
    for (let c = 0; c < row.length; c++) sum += matrix[r * row.length + c] * row[c];
    return sum;
  });
}

const dot = (a: Row, b: Row): number => a.reduce((sum, value, i) => sum + value * b[i], 0);
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const silu = (x: number): number => x * sigmoid(x);
