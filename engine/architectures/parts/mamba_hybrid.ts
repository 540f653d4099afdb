/** Mixers shared by hybrids of Mamba2 and attention. */
import type { Hparams, LayerShape } from "../../gguf/hparams/hparams.ts";
import type { MambaHparams } from "../../gguf/hparams/mamba_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { columns } from "../../plan/ops/columns.ts";
import { groupedNorm } from "../../plan/ops/grouped_norm.ts";
import { mamba2, mambaColumns } from "../../plan/ops/mamba2.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { convolveChannels } from "../../plan/ops/short_conv.ts";
import { mambaState } from "../../plan/plan.ts";
import { groupedAttention, type GroupedHeads, groupedKeys } from "./grouped_attention.ts";
import type { TensorName } from "../architecture.ts";

/** The value to which a mixer's output is added, and the factor on that output. */
export interface Residual {
  readonly addTo: Value;
  readonly times?: number;
}

/**
 * Adds a Mamba2 layer's output of normed rows x to the residual. The output is normed per group unless
 * `normed` is false. The file stores the decay as -e^A. Sources: "Transformers are SSMs" (arXiv 2405.21060),
 * section 7; Hugging Face transformers, models/mamba2.
 */
export function mixMamba2(
  b: PlanBuilder,
  x: Value,
  { normed = true, ...m }: MambaHparams & { readonly normed?: boolean },
  eps: number,
  name: TensorName,
  residual: Residual,
): void {
  const heads = { ...m, layer: b.stateLayer(mambaState(m)) };
  const inner = m.heads * m.headDim;
  // Columns of the input product: gates, channels, the state's write and read vectors, step sizes.
  const [rows] = linear(b, x, [{ name: name("ssm_in"), rows: mambaColumns(m) }]);
  convolveChannels(b, rows, name("ssm_conv1d"), heads);
  mamba2(b, rows, { decay: name("ssm_a"), skip: name("ssm_d"), bias: name("ssm_dt.bias") }, heads);
  const results = { first: inner, columns: inner, groups: m.groups };
  const out = normed
    ? groupedNorm(b, rows, results, name("ssm_norm.weight"), eps)
    : columns(b, rows, results);
  linear(b, out, [{ name: name("ssm_out"), rows: residual.addTo.columns, ...residual }]);
}

/** Options of an attention layer, besides its heads. */
export interface AttentionOptions {
  /** Factor on attention scores. */
  readonly scale: number;
  /** Rotary angles; undefined: heads have no positions. */
  readonly table?: Value;
  /** Whether rotated pairs are (2i, 2i + 1) instead of (i, i + half). */
  readonly interleaved?: boolean;
}

/** Adds the attention output of normed rows x to the residual, with the file's biases if any. */
export function mixAttention(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  shape: LayerShape,
  options: AttentionOptions,
  name: TensorName,
  residual: Residual,
): void {
  const attn = groupedAttention(b, x, headsOf(h, shape, options), name);
  linear(b, attn, [{ name: name("attn_output"), rows: residual.addTo.columns, ...residual }]);
}

/** Appends the keys and values of normed rows x to a new KV cache. */
export function mixKeys(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  shape: LayerShape,
  options: AttentionOptions,
  name: TensorName,
): void {
  groupedKeys(b, x, headsOf(h, shape, options), name);
}

function headsOf(h: Hparams, { heads, kvHeads }: LayerShape, options: AttentionOptions): GroupedHeads {
  return { heads, kvHeads, headDim: h.keyLength, rotated: h.ropeDimensionCount, eps: h.epsilon, ...options };
}
