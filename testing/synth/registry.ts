import type { Dimensions, Family } from "./family.ts";
import { GEMMA2, GEMMA3 } from "./gemma3.ts";
import { GEMMA3N } from "./gemma3n.ts";
import { GEMMA4, GEMMA4_MOE } from "./gemma4.ts";
import { GEMMA_EMBEDDING } from "./gemma_embedding.ts";
import { DECI } from "./deci.ts";
import { ERNIE45_MOE } from "./ernie45_moe.ts";
import { DEEPSEEK2, DEEPSEEK2_LITE } from "./latent.ts";
import { LFM2, LFM2MOE } from "./lfm2.ts";
import { GPT_OSS } from "./gpt_oss.ts";
import { ARCEE } from "./arcee.ts";
import { BERT, JINA_BERT_V2, JINA_BERT_V3, MODERN_BERT, NOMIC_BERT, NOMIC_BERT_MOE } from "./encoders.ts";
import { EUROBERT, LLAMA_EMBED, NEO_BERT } from "./llama_encoders.ts";
import { GEMMA, HUNYUAN_DENSE, LLAMA, MAINCODER, QWEN2, QWEN3, SEED_OSS } from "./llama.ts";
import { COHERE2MOE, COHERE2MOE_SHARED } from "./cohere2moe.ts";
import { COHERE2, COMMAND_R, COMMAND_R_PLUS, NEMOTRON, STARCODER2 } from "./layer_normed.ts";
import { GPTNEOX, PHI2, STABLELM, STABLELM_12B } from "./gpt_neox.ts";
import { NANBEIGE } from "./nanbeige.ts";
import { MELLUM } from "./mellum.ts";
import { FALCON_H1, GRANITEHYBRID, GRANITEHYBRID_MOE, NEMOTRON_H, NEMOTRON_H_MOE } from "./mamba_hybrids.ts";
import { MINICPM } from "./minicpm.ts";
import { QWEN3MOE } from "./qwen3moe.ts";
import { MISTRAL3 } from "./mistral3.ts";
import { GLM4 } from "./glm4.ts";
import { BAILINGMOE, DEEPSEEK, HUNYUAN_MOE, QWEN2MOE } from "./shared_experts.ts";
import { AFMOE, BAILINGMOE2, GLM4MOE, MINIMAX_M2 } from "./sigmoid_experts.ts";
import { GRANITE, GRANITE_SWA, GRANITE_SWA_MOE, GRANITEMOE } from "./granite.ts";
import { OLMOE } from "./olmoe.ts";
import { EXAONE4, EXAONE4_WINDOWS, OLMO2, OLMO3 } from "./post_normed.ts";
import { PLAMO3 } from "./plamo3.ts";
import { PHI3, PHI3_LONG } from "./phi3.ts";
import { QWEN35 } from "./qwen35.ts";
import { QWEN35MOE, QWEN3NEXT } from "./qwen35moe.ts";
import { SMOLLM3 } from "./smollm3.ts";

const ALL = {
  granitehybrid: GRANITEHYBRID,
  granitehybrid_moe: GRANITEHYBRID_MOE,
  gemma: GEMMA,
  gemma2: GEMMA2,
  gemma3: GEMMA3,
  gemma3n: GEMMA3N,
  gemma4: GEMMA4,
  gemma4_moe: GEMMA4_MOE,
  "gemma-embedding": GEMMA_EMBEDDING,
  "falcon-h1": FALCON_H1,
  nemotron_h: NEMOTRON_H,
  nemotron_h_moe: NEMOTRON_H_MOE,
  bert: BERT,
  "nomic-bert": NOMIC_BERT,
  "nomic-bert-moe": NOMIC_BERT_MOE,
  "modern-bert": MODERN_BERT,
  "neo-bert": NEO_BERT,
  "jina-bert-v2": JINA_BERT_V2,
  "jina-bert-v3": JINA_BERT_V3,
  eurobert: EUROBERT,
  "llama-embed": LLAMA_EMBED,
  llama: LLAMA,
  deci: DECI,
  cohere2: COHERE2,
  cohere2moe: COHERE2MOE,
  "cohere2moe-shared": COHERE2MOE_SHARED,
  "command-r": COMMAND_R,
  "command-r-plus": COMMAND_R_PLUS,
  qwen2: QWEN2,
  qwen3: QWEN3,
  qwen2moe: QWEN2MOE,
  qwen3moe: QWEN3MOE,
  mellum: MELLUM,
  qwen35: QWEN35,
  qwen35moe: QWEN35MOE,
  qwen3next: QWEN3NEXT,
  "ernie4_5-moe": ERNIE45_MOE,
  seed_oss: SEED_OSS,
  arcee: ARCEE,
  minicpm: MINICPM,
  starcoder2: STARCODER2,
  nemotron: NEMOTRON,
  gptneox: GPTNEOX,
  phi2: PHI2,
  stablelm: STABLELM,
  "stablelm-12b": STABLELM_12B,
  nanbeige: NANBEIGE,
  smollm3: SMOLLM3,
  lfm2: LFM2,
  lfm2moe: LFM2MOE,
  "gpt-oss": GPT_OSS,
  phi3: PHI3,
  glm4: GLM4,
  plamo3: PLAMO3,
  glm4moe: GLM4MOE,
  bailingmoe2: BAILINGMOE2,
  deepseek2: DEEPSEEK2,
  "deepseek2-lite": DEEPSEEK2_LITE,
  "minimax-m2": MINIMAX_M2,
  deepseek: DEEPSEEK,
  bailingmoe: BAILINGMOE,
  afmoe: AFMOE,
  "hunyuan-dense": HUNYUAN_DENSE,
  maincoder: MAINCODER,
  "hunyuan-moe": HUNYUAN_MOE,
  olmo2: OLMO2,
  olmo3: OLMO3,
  olmoe: OLMOE,
  exaone4: EXAONE4,
  "exaone4-windows": EXAONE4_WINDOWS,
  granite: GRANITE,
  granitemoe: GRANITEMOE,
  granite_swa: GRANITE_SWA,
  granite_swa_moe: GRANITE_SWA_MOE,
  mistral3: MISTRAL3,
  "phi3-long": PHI3_LONG,
};

/** A kind of synthetic model: an architecture, or one of several that files of an architecture may be. */
export type Architecture = keyof typeof ALL;

export const FAMILIES: Readonly<Record<Architecture, Family<Dimensions>>> = ALL as Readonly<
  Record<Architecture, Family<Dimensions>>
>;
