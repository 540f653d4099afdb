import { COHERES } from "./decoders/cohere.ts";
import { DECI } from "./decoders/deci.ts";
import { BAILINGMOE, DEEPSEEK } from "./decoders/deepseek.ts";
import { DEEPSEEK2, DEEPSEEK32, GLM_DSA, MINICPM3, MISTRAL4 } from "./decoders/deepseek2.ts";
import { ERNIE45_MOE } from "./decoders/ernie45_moe.ts";
import { GATED_HEADS } from "./decoders/gated_heads.ts";
import { GEMMAS } from "./decoders/gemma.ts";
import { GRANITES } from "./decoders/granite.ts";
import { HUNYUANS } from "./decoders/hunyuan.ts";
import { LAYER_NORMED } from "./decoders/layer_normed.ts";
import { LLAMAS } from "./decoders/llama.ts";
import { LLAMA4 } from "./decoders/llama4.ts";
import { POST_NORMED } from "./decoders/post_normed.ts";
import { QWENS } from "./decoders/qwen.ts";
import { QWEN_MIXTURES } from "./decoders/qwen_moe.ts";
import { SIGMOID_EXPERTS } from "./decoders/sigmoid_experts.ts";
import { GEMMA_EMBEDDING } from "./encoders/gemma_embedding.ts";
import { LLAMA_ENCODERS } from "./encoders/llama_encoder.ts";
import { BAILINGMOE3, KIMI_LINEAR } from "./hybrids/kimi_linear.ts";
import type { Family } from "./family.ts";

const ALL: readonly Family[] = [
  ...LLAMAS,
  ...QWENS,
  ...GRANITES,
  ...HUNYUANS,
  ...LAYER_NORMED,
  ...COHERES,
  ...POST_NORMED,
  ...GEMMAS,
  DECI,
  ...QWEN_MIXTURES,
  ...SIGMOID_EXPERTS,
  ...GATED_HEADS,
  LLAMA4,
  ERNIE45_MOE,
  DEEPSEEK,
  BAILINGMOE,
  DEEPSEEK2,
  MISTRAL4,
  DEEPSEEK32,
  GLM_DSA,
  MINICPM3,
  KIMI_LINEAR,
  BAILINGMOE3,
  ...LLAMA_ENCODERS,
  GEMMA_EMBEDDING,
];

/** Model families that one description defines, by `general.architecture`. */
export const FAMILIES: ReadonlyMap<string, Family> = new Map(
  ALL.map((family) => [family.architecture, family]),
);
