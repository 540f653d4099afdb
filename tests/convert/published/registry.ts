import { COHERES } from "./cohere.ts";
import { DECODERS } from "./decoders.ts";
import { DESCRIBED } from "./described.ts";
import { ENCODERS } from "./encoders.ts";
import { ERNIE45_MOE, SEED_OSS } from "./ernie45.ts";
import { GEMMAS } from "./gemma.ts";
import { FALCON_H1, MAMBA2 } from "./hybrids.ts";
import { KIMI_LINEAR, LING3 } from "./kimi_linear.ts";
import { NEOX } from "./gpt_neox.ts";
import { DEEPSEEK_V2_LITE, DEEPSEEK_V32, GLM47_FLASH, GLM5, MINICPM3, MISTRAL_SMALL_4 } from "./latent.ts";
import {
  DEEPSEEK_MOE,
  DOTS1,
  GLM45,
  GRANITE_MOE,
  GRANITE_SWA,
  HUNYUAN_A13B,
  HY3,
  K_EXAONE,
  LING2,
  MELLUM2,
  MINIMAX_M2,
  OLMOE,
  QWEN2_MOE,
  QWEN3_VL_MOE,
  TRINITY,
} from "./mixtures.ts";
import type { Published } from "./model.ts";
import { LAGUNA, LLAMA4, MIMO2, MINIMAX_M3, SMALLTHINKER, STEP35 } from "./windowed.ts";

/** Seeded models as their makers would publish them. */
export const PUBLISHED: Readonly<Record<string, Published>> = {
  ...ENCODERS,
  ...GEMMAS,
  ...DECODERS,
  ...COHERES,
  ...NEOX,
  "ERNIE 4.5 with experts": ERNIE45_MOE,
  "Seed-OSS": SEED_OSS,
  "DeepSeek V2 Lite": DEEPSEEK_V2_LITE,
  "DeepSeek V3.2": DEEPSEEK_V32,
  DeepSeekMoE: DEEPSEEK_MOE,
  "dots.llm1": DOTS1,
  "Falcon-H1": FALCON_H1,
  "GLM-4.5": GLM45,
  "GLM-4.7 Flash": GLM47_FLASH,
  "GLM-5": GLM5,
  "MiniCPM3": MINICPM3,
  "Mistral Small 4": MISTRAL_SMALL_4,
  "Granite 3 with experts": GRANITE_MOE,
  "Granite with windows": GRANITE_SWA,
  "Hunyuan-A13B": HUNYUAN_A13B,
  Hy3: HY3,
  "K-EXAONE": K_EXAONE,
  "Ling 2.0": LING2,
  "Kimi Linear": KIMI_LINEAR,
  Laguna: LAGUNA,
  "Ling 3.0": LING3,
  "Llama 4": LLAMA4,
  Mamba2: MAMBA2,
  "Mellum 2": MELLUM2,
  "MiMo V2 Flash": MIMO2,
  "MiniMax M2": MINIMAX_M2,
  "MiniMax M3": MINIMAX_M3,
  OLMoE: OLMOE,
  "Qwen2 with experts": QWEN2_MOE,
  "Qwen3-VL with experts": QWEN3_VL_MOE,
  SmallThinker: SMALLTHINKER,
  "Step 3.5": STEP35,
  Trinity: TRINITY,
  ...DESCRIBED,
};
