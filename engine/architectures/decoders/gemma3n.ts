import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import { inWords } from "../../gguf/metadata.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { altupCorrect, altupPredict } from "../../plan/ops/altup.ts";
import { embed } from "../../plan/ops/embed.ts";
import { matchRms, meanOfMatched } from "../../plan/ops/match_rms.ts";
import { linear, stacked } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { sparseGate } from "../../plan/ops/sparse_gate.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { geGluRows } from "../parts/geglu.ts";
import { attentionHalf, attentionKinds, layerInput, perLayerInputs, sharedLayers } from "./gemma4.ts";
import type { Rope } from "../parts/rope.ts";

/** The number of streams that AltUp's kernels support. */
const STREAMS = 4;
/** Layers per period, where the file has no pattern. The last layer of a period has no window. */
const PERIOD = 5;
/** Lower bound of a row's root mean square when rows are scaled to another stream's magnitude. */
const LEAST_RMS = Math.sqrt(1e-5);

/**
 * Gemma 3n's text part: Gemma 4's attention and per-layer embeddings. Layers compute on one of four streams,
 * from which they predict and correct the others (AltUp). A low-rank product runs beside attention (LAuReL).
 * In the first layers, only gates far above the mean pass. Sums in the middle of a layer are divided by
 * sqrt(2).
 * Sources: Hugging Face transformers, models/gemma3n; "Alternating Updates for Efficient Transformers" (arXiv
 * 2301.13310); "LAuReL" (arXiv 2411.07501).
 */
export const GEMMA3N: Architecture = {
  allows: { layersDiffer: true },
  ending: (keys) => ({ logits: { softcap: keys.softcap("final_logit_softcapping") } }),
  build: buildGemma3n,
};

function buildGemma3n(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  checkStreams(keys);
  const sliding = keys.windowLayers(h.blockCount, { period: PERIOD });
  const own = h.blockCount - sharedLayers(keys, h.blockCount);
  const deviations = cutoffs(keys, h.blockCount);
  const embedding = embed(b, "token_embd", h.vocabSize, h.embeddingLength, Math.sqrt(h.embeddingLength));
  const kinds = attentionKinds(b, keys, h, rope);
  const inputs = perLayerInputs(b, embedding, keys, h) ??
    keys.refuse("embedding_length_per_layer_input", "0", "at least 1");
  const rank = laurelRank(b);
  const streams = spread(b, embedding);
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const eps = h.epsilon;
    const mixing = (coefs: string) => {
      return { norm: name("altup_router_norm"), router: name("altup_router"), coefs: name(coefs), eps };
    };
    const x = altupPredict(b, streams, mixing("altup_predict_coef"), Math.SQRT1_2);
    const attnIn = rmsNorm(b, streams[0], name("attn_norm"), eps);
    const kind = sliding[layer] ? kinds.sliding : kinds.full;
    const attn = attentionHalf(b, attnIn, h, h.layers[layer], kind, layer < own, name);
    const [low] = linear(b, attnIn, [{ name: name("laurel_l"), rows: rank }]);
    const [laurel] = linear(b, low, [{ name: name("laurel_r"), rows: h.embeddingLength }]);
    const half = { scale: Math.SQRT1_2 };
    // LAuReL has its own residual: attention's input.
    postNorm(b, streams[0], name("attn_norm"), eps, x, half);
    postNorm(b, laurel, name("laurel_post_norm"), eps, x, half);
    postNorm(b, attn, name("post_attention_norm"), eps, x, half);
    const ffn = feedForward(b, x, h.layers[layer].feedForwardLength, eps, deviations[layer], name);
    postNorm(b, ffn, name("post_ffw_norm"), eps, x);
    const active = altupCorrect(b, x, streams, mixing("altup_correct_coef"), name("altup_correct_scale"));
    const made = layerInput(b, active, inputs, h, layer);
    for (const stream of streams.slice(1)) postNorm(b, made, name("post_norm"), eps, stream);
  }
  return merge(b, streams);
}

function checkStreams(keys: ArchitectureKeys): void {
  const must = (name: string, value: number) => {
    const found = keys.metadata.getCount(keys.name(name), value);
    if (found !== value) keys.refuse(name, String(found), String(value));
  };
  must("altup.num_inputs", STREAMS);
  must("altup.active_idx", 0);
}

/** Per layer, the standard deviations above the mean at which gates are cut; undefined where none are cut. */
function cutoffs(keys: ArchitectureKeys, layers: number): (number | undefined)[] {
  const name = "activation_sparsity_scale";
  const found = Array.from(keys.metadata.getNumbers(keys.name(name)) ?? []);
  if (found.length !== layers || found.some((scale) => Number.isNaN(scale) || scale === Infinity)) {
    const value = keys.metadata.entries.get(keys.name(name));
    const got = value === undefined ? "no such key" : inWords(value);
    keys.refuse(name, got, `an array of ${layers} numbers, one for each layer`);
  }
  return found.map((scale) => scale === -Infinity ? undefined : scale);
}

/** Columns between LAuReL's two products. No key holds them, so the tensor's shape does. */
function laurelRank(b: PlanBuilder): number {
  return b.file.tensors.get("blk.0.laurel_l.weight")?.shape.at(1) ?? 1;
}

/** Returns the initial streams: the embedding, and projections of it, scaled to its magnitude. */
function spread(b: PlanBuilder, x: Value): Value[] {
  const others = linear(b, x, stacked("altup_proj", STREAMS - 1, x.columns));
  matchRms(b, x, others, LEAST_RMS);
  return [x, ...others];
}

/**
 * Merges the streams into one: the mean of the first and of the others' projections, scaled to its magnitude.
 */
function merge(b: PlanBuilder, [first, ...others]: readonly Value[]): Value {
  const projections = stacked("altup_unembd_proj", others.length, first.columns);
  const projected = others.map((stream, i) => linear(b, stream, [projections[i]])[0]);
  return meanOfMatched(b, first, projected, LEAST_RMS);
}

function feedForward(
  b: PlanBuilder,
  x: Value,
  rows: number,
  eps: number,
  deviations: number | undefined,
  name: TensorName,
): Value {
  if (deviations === undefined) return geGluRows(b, x, rows, eps, name);
  const ffnIn = rmsNorm(b, x, name("ffn_norm"), eps);
  const [gate, up] = linear(b, ffnIn, [{ name: name("ffn_gate"), rows }, { name: name("ffn_up"), rows }]);
  const ffn = sparseGate(b, gate, up, deviations);
  return linear(b, ffn, [{ name: name("ffn_down"), rows: x.columns }])[0];
}
