/** What hybrids of Mamba2 and attention have in common: their mixers, each up to the residual. */
import type { Hparams, LayerShape } from "../../gguf/hparams.ts";
import type { MambaHparams } from "../../gguf/mamba_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { columns } from "../../plan/ops/columns.ts";
import { groupedNorm } from "../../plan/ops/grouped_norm.ts";
import { mamba2, mambaColumns } from "../../plan/ops/mamba2.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { convolveChannels } from "../../plan/ops/short_conv.ts";
import { mambaState } from "../../plan/plan.ts";
import { groupedAttention } from "./grouped_attention.ts";
import type { TensorName } from "../architecture.ts";

/** Where a mixer's results go: so many times to a value. */
export interface Residual {
  readonly addTo: Value;
  readonly times?: number;
}

/**
 * A layer of Mamba2 over normed rows x, whose results are normed in their groups unless it says otherwise. The file has the decay as -e^A. Sources: "Transformers are SSMs" (arXiv 2405.21060),
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
  // Side by side: gates, channels, what these are written and read by, step sizes.
  const [rows] = linear(b, x, [{ name: name("ssm_in"), rows: mambaColumns(m) }]);
  convolveChannels(b, rows, name("ssm_conv1d"), heads);
  mamba2(b, rows, { decay: name("ssm_a"), skip: name("ssm_d"), bias: name("ssm_dt.bias") }, heads);
  const results = { first: inner, columns: inner, groups: m.groups };
  const out = normed
    ? groupedNorm(b, rows, results, name("ssm_norm.weight"), eps)
    : columns(b, rows, results);
  linear(b, out, [{ name: name("ssm_out"), rows: residual.addTo.columns, ...residual }]);
}

/** What a layer of attention is beside its heads. */
export interface AttentionOptions {
  /** What scores are multiplied by. */
  readonly scale: number;
  /** Rotary angles; absent where heads have no positions. */
  readonly table?: Value;
  /** Rotated pairs are (2i, 2i + 1); otherwise (i, i + half). */
  readonly interleaved?: boolean;
}

/** Attention of normed rows x, with the biases that the file has. */
export function mixAttention(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  { heads, kvHeads }: LayerShape,
  options: AttentionOptions,
  name: TensorName,
  residual: Residual,
): void {
  const rope = { rotated: h.ropeDimensionCount, eps: h.epsilon };
  const attn = groupedAttention(b, x, { heads, kvHeads, headDim: h.keyLength, ...rope, ...options }, name);
  linear(b, attn, [{ name: name("attn_output"), rows: residual.addTo.columns, ...residual }]);
}
