import { LAYER_NORMED, LLAMAS } from "./dense.ts";
import type { Dimensions, SynthModel } from "./model.ts";
import { GRANITES } from "./granite.ts";
import { EUROBERT, GEMMA_EMBEDDING, LLAMA_EMBED, NEO_BERT } from "./encoders/decoder_encoders.ts";
import { MIXTURES } from "./mixtures.ts";
import { QWEN35, QWEN35MOE, QWEN3NEXT } from "./qwen35.ts";
import { WINDOWED_MIXTURES } from "./windowed_mixtures.ts";
import { PLAMO3, POST_NORMED } from "./post_normed.ts";
import { GATED_HEADS } from "./gated_heads.ts";
import { GEMMA3N } from "./gemma3n.ts";
import { GEMMA4, GEMMA4_MOE } from "./gemma4.ts";
import { DEEPSEEK2, DEEPSEEK2_LITE, MISTRAL4 } from "./latent/latent.ts";
import { MINICPM3 } from "./latent/minicpm3.ts";
import { BAILINGMOE3, KIMI_LINEAR } from "./latent/kimi_linear.ts";
import { LFM2, LFM2MOE } from "./lfm2.ts";
import {
  BERT,
  JINA_BERT_V2,
  JINA_BERT_V3,
  MODERN_BERT,
  NOMIC_BERT,
  NOMIC_BERT_MOE,
} from "./encoders/encoders.ts";
import { DEEPSEEK32, GLM_DSA } from "./latent/sparse.ts";
import {
  FALCON_H1,
  GRANITEHYBRID,
  GRANITEHYBRID_MOE,
  MAMBA2,
  NEMOTRON_H,
  NEMOTRON_H_MOE,
} from "./mamba_hybrids.ts";

const ALL = {
  ...LLAMAS,
  ...GRANITES,
  ...LAYER_NORMED,
  ...POST_NORMED,
  plamo3: PLAMO3,
  ...MIXTURES,
  ...WINDOWED_MIXTURES,
  ...GATED_HEADS,
  deepseek2: DEEPSEEK2,
  "deepseek2-lite": DEEPSEEK2_LITE,
  mistral4: MISTRAL4,
  minicpm3: MINICPM3,
  deepseek32: DEEPSEEK32,
  "glm-dsa": GLM_DSA,
  "kimi-linear": KIMI_LINEAR,
  bailingmoe3: BAILINGMOE3,
  gemma3n: GEMMA3N,
  gemma4: GEMMA4,
  gemma4_moe: GEMMA4_MOE,
  "gemma-embedding": GEMMA_EMBEDDING,
  granitehybrid: GRANITEHYBRID,
  granitehybrid_moe: GRANITEHYBRID_MOE,
  "falcon-h1": FALCON_H1,
  mamba2: MAMBA2,
  nemotron_h: NEMOTRON_H,
  nemotron_h_moe: NEMOTRON_H_MOE,
  lfm2: LFM2,
  lfm2moe: LFM2MOE,
  qwen35: QWEN35,
  qwen35moe: QWEN35MOE,
  qwen3next: QWEN3NEXT,
  bert: BERT,
  "nomic-bert": NOMIC_BERT,
  "nomic-bert-moe": NOMIC_BERT_MOE,
  "modern-bert": MODERN_BERT,
  "neo-bert": NEO_BERT,
  "jina-bert-v2": JINA_BERT_V2,
  "jina-bert-v3": JINA_BERT_V3,
  eurobert: EUROBERT,
  "llama-embed": LLAMA_EMBED,
};

/** Name of a synthetic model: an architecture, or one of several variants of an architecture. */
export type Architecture = keyof typeof ALL;

export const SYNTH_MODELS: Readonly<Record<Architecture, SynthModel<Dimensions>>> = ALL as Readonly<
  Record<Architecture, SynthModel<Dimensions>>
>;
