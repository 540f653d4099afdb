import { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import { type Allowed, type Hparams, readHparams } from "../gguf/hparams/hparams.ts";
import { type ModelPooling, type PoolingKind, RANK_HEAD, readPooling } from "../gguf/hparams/pooling.ts";
import type { GgufFile } from "../gguf/types.ts";
import type { PlanAdapters } from "../plan/adapters.ts";
import { PlanBuilder, type Value } from "../plan/builder.ts";
import type { ImageRows } from "../plan/extra_rows.ts";
import { finishPlan } from "../plan/finish.ts";
import { candidates } from "../plan/ops/candidates.ts";
import { layerNorm } from "../plan/ops/layer_norm.ts";
import { pool, type Pooling, type PoolNorm } from "../plan/ops/pool.ts";
import { returnPooled } from "../plan/ops/return_pooled.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import type { ActivationPrecision, Plan } from "../plan/plan.ts";
import type { Architecture } from "./architecture.ts";
import { AFMOE } from "./decoders/afmoe.ts";
import { GEMMA3N } from "./decoders/gemma3n.ts";
import { GEMMA4 } from "./decoders/gemma4.ts";
import { GPT_OSS } from "./decoders/gpt_oss.ts";
import type { Drafter } from "./drafters/drafter.ts";
import { BERT, JINA_BERT_V2, JINA_BERT_V3, NOMIC_BERT, NOMIC_BERT_MOE } from "./encoders/bert.ts";
import { NEO_BERT } from "./encoders/llama_encoder.ts";
import { MODERN_BERT } from "./encoders/modern_bert.ts";
import { FAMILIES } from "./families.ts";
import { decoderOf } from "./family.ts";
import { FALCON_H1 } from "./hybrids/falcon_h1.ts";
import { GRANITEHYBRID } from "./hybrids/granitehybrid.ts";
import { LFM2, LFM2MOE } from "./hybrids/lfm2.ts";
import { MAMBA2 } from "./hybrids/mamba2.ts";
import { NEMOTRON_H, NEMOTRON_H_MOE } from "./hybrids/nemotron_h.ts";
import { QWEN35 } from "./hybrids/qwen35.ts";
import { QWEN35MOE } from "./hybrids/qwen35moe.ts";
import { QWEN3NEXT } from "./hybrids/qwen3next.ts";
import { checkFileType, isLeftOut } from "./left_out.ts";
import { fileHasDraftLayer } from "./parts/draft_layer.ts";
import { imageAxes } from "./parts/images.ts";
import { isRopeFactors, readFactors, Rope, type RopeFactors } from "./parts/rope.ts";
import { textRow } from "./text_row.ts";

/** Supported architectures, by GGUF name. */
const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  ...Object.fromEntries([...FAMILIES.values()].map((family) => [family.architecture, decoderOf(family)])),
  afmoe: AFMOE,
  gemma3n: GEMMA3N,
  gemma4: GEMMA4,
  "gpt-oss": GPT_OSS,
  bert: BERT,
  "nomic-bert": NOMIC_BERT,
  "nomic-bert-moe": NOMIC_BERT_MOE,
  "modern-bert": MODERN_BERT,
  "neo-bert": NEO_BERT,
  "jina-bert-v2": JINA_BERT_V2,
  "jina-bert-v3": JINA_BERT_V3,
  qwen35: QWEN35,
  qwen35moe: QWEN35MOE,
  qwen3next: QWEN3NEXT,
  lfm2: LFM2,
  lfm2moe: LFM2MOE,
  granitehybrid: GRANITEHYBRID,
  "falcon-h1": FALCON_H1,
  mamba2: MAMBA2,
  nemotron_h: NEMOTRON_H,
  nemotron_h_moe: NEMOTRON_H_MOE,
};

/** GGUF names of the supported architectures. */
export const ARCHITECTURE_NAMES: readonly string[] = Object.keys(ARCHITECTURES);

/** Default name of the norm after the last layer. */
const OUTPUT_NORM = "output_norm";

/** Head sizes must be multiples of this, because kernels read heads in whole vectors. */
const HEAD_DIM_STEP = 16;
/** Maximum number of query heads per KV head. */
const MAX_GROUP = 256;

export interface PlanOptions {
  /** Include the layer that drafts tokens. The file must have one (`hasDraftLayer`). */
  readonly drafts?: boolean;
  /** Number of tokens to choose drafts from, the first of the vocabulary; by default a quarter of a large one. */
  readonly draftTokens?: number;
  /** Precision of activations in products with quantized weights; by default `fast`. */
  readonly activations?: ActivationPrecision;
  readonly adapters?: PlanAdapters;
  /** Take rows of images. The architecture must: see `imagesOf`. */
  readonly images?: ImageRows;
  /** A drafter whose tensors `joinDrafter` has added to the file. */
  readonly drafter?: Drafter;
}

/** Returns where images' rows are in the decoder; undefined if it takes none. Throws as buildPlan. */
export function imagesOf(file: GgufFile): Architecture["images"] {
  return architectureOf(file).images;
}

/** Returns whether the file has a complete layer that drafts tokens. Throws as buildPlan. */
export function hasDraftLayer(file: GgufFile): boolean {
  const { drafts, allows } = architectureOf(file);
  return drafts === true && fileHasDraftLayer(file, readHparams(file, allows));
}

/**
 * Compiles a file's model into its plan. `factors` come from `readRopeFactors`; `pooling` defaults to the
 * file's. Throws GgufError for an unsupported architecture or shape, or a missing or unexpected tensor.
 */
export function buildPlan(
  file: GgufFile,
  factors?: RopeFactors,
  pooling: ModelPooling = poolingOf(file),
  { drafts = false, draftTokens, activations = "fast", adapters, images, drafter }: PlanOptions = {},
): Plan {
  const architecture = architectureOf(file);
  const hparams = readHparams(file, architecture.allows);
  checkHeads(hparams, architecture.allows);
  const keys = ArchitectureKeys.of(file.metadata);
  const { norm = OUTPUT_NORM, encoder = false, logits, ...ending } = architecture.ending?.(keys, hparams) ??
    {};
  const layerNorms = ending.layerNorm ?? architecture.allows?.layerNorm ?? false;
  const fine = activations === "fine";
  const builder = new PlanBuilder(file, { drafts, draftTokens, fine, adapters, images, drafter });
  builder.leaveOut(isRopeFactors);
  builder.leaveOut(isLeftOut);
  const axes = images && architecture.images === "grid"
    ? imageAxes(keys, hparams.ropeDimensionCount / 2)
    : undefined;
  const x = architecture.build(builder, hparams, new Rope(hparams, factors, axes));
  if (drafter) {
    checkHeads(drafter.hparams);
    drafter.add(builder);
  }
  if (!encoder) {
    const last = (layerNorms ? layerNorm : rmsNorm)(builder, x, norm, hparams.epsilon, "logits");
    candidates(builder, last, hparams.vocabSize, logits);
  }
  const poolTexts = architecture.pool ??
    ((b, x, h, pooling) => poolDecoder(b, x, { name: norm, eps: h.epsilon, layerNorms }, pooling));
  returnPooled(builder, poolTexts(builder, x, hparams, pooling));
  return finishPlan(builder, {
    architecture: hparams.architecture,
    vocabSize: hparams.vocabSize,
    contextLength: hparams.contextLength,
  });
}

/**
 * Returns how the model pools whole texts: `chosen`, or by default as the file says. Throws as readPooling, and for an
 * unsupported architecture.
 */
export function poolingOf(file: GgufFile, chosen?: PoolingKind): ModelPooling {
  return readPooling(file, chosen, architectureOf(file).pooling);
}

function architectureOf(file: GgufFile): Architecture {
  checkFileType(file);
  const name = file.metadata.getString("general.architecture");
  if (Object.hasOwn(ARCHITECTURES, name)) return ARCHITECTURES[name];
  const known = Object.keys(ARCHITECTURES).map(quote).join(", ");
  const detail = `must be one of ${known} (got ${quote(name)})`;
  throw new GgufError("GGUF_HPARAM", detail, { field: 'key "general.architecture"' });
}

/** Builds the row of each text to embed or rank, in addition to the candidates. */
function poolDecoder(
  b: PlanBuilder,
  x: Value,
  { layerNorms, ...norm }: PoolNorm & { layerNorms: boolean },
  { kind, labels }: ModelPooling,
): Value {
  const pooled = (layerNorms ? poolLayerNormed : pool)(b, x, kind === "rank" ? "last" : kind, norm);
  if (kind === "rank") return textRow(b, pooled, RANK_HEAD, labels);
  b.leaveOut((name) => name.startsWith(`${RANK_HEAD}.`));
  return pooled;
}

/**
 * Pools rows to one row per text, with a LayerNorm instead of RMSNorm. A single row is chosen first and then normed,
 * which costs less.
 */
function poolLayerNormed(b: PlanBuilder, x: Value, way: Pooling, { name, eps }: PoolNorm): Value {
  if (way === "mean") return pool(b, layerNorm(b, x, name, eps), way);
  return layerNorm(b, pool(b, x, way), name, eps);
}

/** Builds the plan as `buildPlan` does, with rotary factors read from the file. */
export async function readPlan(
  file: GgufFile,
  pooling?: ModelPooling,
  options?: PlanOptions,
): Promise<Plan> {
  return buildPlan(file, await readRopeFactors(file), pooling, options);
}

/** Reads the file's rotary factor tensors, for `buildPlan`. */
export async function readRopeFactors(file: GgufFile): Promise<RopeFactors> {
  return await readFactors(file, readHparams(file, architectureOf(file).allows));
}

function checkHeads(h: Hparams, allowed: Allowed = {}): void {
  const refuse = (key: string, got: number, must: string) => {
    const field = `key ${quote(`${h.architecture}.attention.${key}`)}`;
    throw new GgufError("GGUF_HPARAM", `must be ${must} (got ${got})`, { field });
  };
  if (h.valueLength !== h.keyLength && !allowed.valuesDiffer) {
    refuse("value_length", h.valueLength, `the key length ${h.keyLength}`);
  }
  if (h.keyLength % HEAD_DIM_STEP !== 0) {
    refuse("key_length", h.keyLength, `a multiple of ${HEAD_DIM_STEP}`);
  }
  for (const { heads, kvHeads } of h.layers) {
    if (kvHeads > 0 && heads / kvHeads > MAX_GROUP) {
      refuse("head_count_kv", kvHeads, `at least a ${MAX_GROUP}th of the ${heads} heads`);
    }
  }
}
