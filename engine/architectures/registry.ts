import { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import { type Allowed, type Hparams, readHparams } from "../gguf/hparams/hparams.ts";
import { type ModelPooling, type PoolingKind, RANK_HEAD, readPooling } from "../gguf/hparams/pooling.ts";
import type { GgufFile } from "../gguf/types.ts";
import { PlanBuilder, type Value } from "../plan/builder.ts";
import { finishPlan } from "../plan/finish.ts";
import { candidates } from "../plan/ops/candidates.ts";
import { layerNorm } from "../plan/ops/layer_norm.ts";
import { pool, type Pooling, type PoolNorm } from "../plan/ops/pool.ts";
import { returnPooled } from "../plan/ops/return_pooled.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import type { ActivationPrecision, Plan } from "../plan/plan.ts";
import type { Architecture } from "./architecture.ts";
import { AFMOE } from "./decoders/afmoe.ts";
import { BAILINGMOE2 } from "./decoders/bailing_moe2.ts";
import { BERT, JINA_BERT_V2, JINA_BERT_V3, NOMIC_BERT, NOMIC_BERT_MOE } from "./encoders/bert.ts";
import { DEEPSEEK2 } from "./decoders/deepseek2.ts";
import { COHERE2, COHERE2MOE, COMMAND_R } from "./decoders/cohere.ts";
import { DECI } from "./decoders/deci.ts";
import { DEEPSEEK } from "./decoders/deepseek.ts";
import { ERNIE45_MOE } from "./decoders/ernie45_moe.ts";
import { FALCON_H1 } from "./hybrids/falcon_h1.ts";
import { GPTNEOX, PHI2, STABLELM } from "./decoders/gpt_neox.ts";
import { GPT_OSS } from "./decoders/gpt_oss.ts";
import { GRANITEHYBRID } from "./hybrids/granitehybrid.ts";
import { GEMMA } from "./decoders/gemma.ts";
import { GEMMA2 } from "./decoders/gemma2.ts";
import { GEMMA3 } from "./decoders/gemma3.ts";
import { GEMMA3N } from "./decoders/gemma3n.ts";
import { GEMMA4 } from "./decoders/gemma4.ts";
import { GEMMA_EMBEDDING } from "./encoders/gemma_embedding.ts";
import { HUNYUAN_MOE } from "./decoders/hunyuan_moe.ts";
import { checkFileType, isLeftOut } from "./left_out.ts";
import { LFM2, LFM2MOE } from "./hybrids/lfm2.ts";
import {
  ARCEE,
  HUNYUAN_DENSE,
  LLAMA,
  MAINCODER,
  NEMOTRON,
  QWEN2,
  QWEN3,
  SEED_OSS,
  STARCODER2,
} from "./decoders/llama.ts";
import { EUROBERT, LLAMA_EMBED, NEO_BERT } from "./encoders/llama_encoder.ts";
import { MELLUM } from "./decoders/mellum.ts";
import { MINICPM } from "./decoders/minicpm.ts";
import { MINIMAX_M2 } from "./decoders/minimax_m2.ts";
import { NANBEIGE } from "./decoders/nanbeige.ts";
import { MODERN_BERT } from "./encoders/modern_bert.ts";
import { NEMOTRON_H, NEMOTRON_H_MOE } from "./hybrids/nemotron_h.ts";
import { MISTRAL3 } from "./decoders/mistral3.ts";
import { GLM4 } from "./decoders/glm4.ts";
import { GLM4MOE } from "./decoders/glm4_moe.ts";
import { GRANITE, GRANITE_SWA, GRANITEMOE } from "./decoders/granite.ts";
import { OLMOE } from "./decoders/olmoe.ts";
import { EXAONE4, OLMO2 } from "./decoders/post_normed.ts";
import { PHI3 } from "./decoders/phi3.ts";
import { PLAMO3 } from "./decoders/plamo3.ts";
import { QWEN3NEXT } from "./hybrids/qwen3next.ts";
import { QWEN35 } from "./hybrids/qwen35.ts";
import { QWEN35MOE } from "./hybrids/qwen35moe.ts";
import { QWEN2MOE } from "./decoders/qwen2moe.ts";
import { QWEN3MOE } from "./decoders/qwen3moe.ts";
import { QWEN2VL, QWEN3VL, QWEN3VLMOE } from "./decoders/qwen_vl.ts";
import { isRopeFactors, readFactors, Rope, type RopeFactors } from "./parts/rope.ts";
import { SMOLLM3 } from "./decoders/smollm3.ts";
import { textRow } from "./text_row.ts";

/** Supported architectures, by GGUF name. */
const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  llama: LLAMA,
  // Llama's decoder under other names.
  ernie4_5: LLAMA,
  internlm2: LLAMA,
  "ernie4_5-moe": ERNIE45_MOE,
  deci: DECI,
  "command-r": COMMAND_R,
  cohere2: COHERE2,
  cohere2moe: COHERE2MOE,
  qwen2: QWEN2,
  qwen3: QWEN3,
  // Qwen2's decoder under other names.
  exaone: QWEN2,
  "pangu-embedded": QWEN2,
  arcee: ARCEE,
  minicpm: MINICPM,
  starcoder2: STARCODER2,
  nemotron: NEMOTRON,
  gptneox: GPTNEOX,
  phi2: PHI2,
  stablelm: STABLELM,
  nanbeige: NANBEIGE,
  seed_oss: SEED_OSS,
  qwen2moe: QWEN2MOE,
  qwen3moe: QWEN3MOE,
  mellum: MELLUM,
  qwen2vl: QWEN2VL,
  qwen3vl: QWEN3VL,
  qwen3vlmoe: QWEN3VLMOE,
  qwen35: QWEN35,
  bert: BERT,
  "nomic-bert": NOMIC_BERT,
  "nomic-bert-moe": NOMIC_BERT_MOE,
  "modern-bert": MODERN_BERT,
  "neo-bert": NEO_BERT,
  "jina-bert-v2": JINA_BERT_V2,
  "jina-bert-v3": JINA_BERT_V3,
  eurobert: EUROBERT,
  "llama-embed": LLAMA_EMBED,
  qwen35moe: QWEN35MOE,
  qwen3next: QWEN3NEXT,
  gemma3: GEMMA3,
  gemma3n: GEMMA3N,
  gemma4: GEMMA4,
  "gemma-embedding": GEMMA_EMBEDDING,
  lfm2: LFM2,
  lfm2moe: LFM2MOE,
  smollm3: SMOLLM3,
  "gpt-oss": GPT_OSS,
  granitehybrid: GRANITEHYBRID,
  "falcon-h1": FALCON_H1,
  nemotron_h: NEMOTRON_H,
  nemotron_h_moe: NEMOTRON_H_MOE,
  phi3: PHI3,
  glm4: GLM4,
  plamo3: PLAMO3,
  glm4moe: GLM4MOE,
  bailingmoe2: BAILINGMOE2,
  deepseek2: DEEPSEEK2,
  "minimax-m2": MINIMAX_M2,
  deepseek: DEEPSEEK,
  // Ling Lite: DeepSeek's decoder under another name.
  bailingmoe: DEEPSEEK,
  afmoe: AFMOE,
  "hunyuan-dense": HUNYUAN_DENSE,
  maincoder: MAINCODER,
  "hunyuan-moe": HUNYUAN_MOE,
  gemma: GEMMA,
  gemma2: GEMMA2,
  olmo2: OLMO2,
  olmoe: OLMOE,
  exaone4: EXAONE4,
  granite: GRANITE,
  granitemoe: GRANITEMOE,
  granite_swa: GRANITE_SWA,
  mistral3: MISTRAL3,
};

/** The norm after the last layer. */
const OUTPUT_NORM = "output_norm";

/** The kernels read heads in whole vectors. */
const HEAD_DIM_STEP = 16;

export interface PlanOptions {
  /** Include the layer that drafts tokens. The file must have one: see `hasDraftLayer`. */
  readonly drafts?: boolean;
  /** Precision of activations in products with quantized weights; by default `fast`. */
  readonly activations?: ActivationPrecision;
}

/** Whether the file has a complete layer that drafts tokens. Throws as buildPlan. */
export function hasDraftLayer(file: GgufFile): boolean {
  const architecture = architectureOf(file);
  return architecture.hasDraftLayer?.(file, readHparams(file, architecture.allows)) ?? false;
}

/**
 * Compiles a file's model into its plan. `factors` come from `readRopeFactors`; `pooling` defaults to the
 * file's. Throws GgufError for an unsupported architecture or shape, or a missing or unexpected tensor.
 */
export function buildPlan(
  file: GgufFile,
  factors?: RopeFactors,
  pooling: ModelPooling = poolingOf(file),
  { drafts = false, activations = "fast" }: PlanOptions = {},
): Plan {
  const architecture = architectureOf(file);
  const hparams = readHparams(file, architecture.allows);
  checkHeads(hparams, architecture.allows);
  const keys = ArchitectureKeys.of(file.metadata);
  const { norm = OUTPUT_NORM, encoder = false, logits, ...ending } = architecture.ending?.(keys, hparams) ??
    {};
  const layerNorms = ending.layerNorm ?? architecture.allows?.layerNorm ?? false;
  const builder = new PlanBuilder(file, { drafts, fine: activations === "fine" });
  builder.leaveOut(isRopeFactors);
  builder.leaveOut(isLeftOut);
  const x = architecture.build(builder, hparams, new Rope(hparams, factors));
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
 * Returns how the model pools whole texts: `chosen`, or by default what the file says. Throws as readPooling,
 * and for an unsupported architecture.
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

/** Builds the row of each text to embed or rank, beside the candidates. */
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
 * Like `pool`, with a LayerNorm instead of RMSNorm. A single row is normed after it is chosen, which costs
 * less.
 */
function poolLayerNormed(b: PlanBuilder, x: Value, way: Pooling, { name, eps }: PoolNorm): Value {
  if (way === "mean") return pool(b, layerNorm(b, x, name, eps), way);
  return layerNorm(b, pool(b, x, way), name, eps);
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
    if (kvHeads > 0 && heads / kvHeads > 64) {
      refuse("head_count_kv", kvHeads, `at least a 64th of the ${heads} heads`);
    }
  }
}
