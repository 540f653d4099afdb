import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture, Ending } from "../architecture.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { buildLlama, type LlamaTraits } from "./llama.ts";
import type { Rope } from "../parts/rope.ts";
import { feedForward, readWeighed, sharedMixture, statedWidth } from "../parts/shared_experts.ts";
import { readWindows, type Sight, windowed } from "../parts/windows.ts";

const MAX_LOGIT_SCALE = 1e9;

const COMMAND: LlamaTraits = { interleavedRope: true, headNorms: false, layerNorms: true, parallel: true };

/** The logit scale is required: checkpoints differ, so no default is right for all. */
const ending = (keys: ArchitectureKeys): Ending => {
  return { logits: { scale: keys.positive("logit_scale", MAX_LOGIT_SCALE) } };
};

/**
 * Cohere's Command R, Aya 23 and Aya Expanse 8B: attention and feed-forward read the same LayerNorm output in
 * parallel. Command R+ also norms its heads. Source: Hugging Face transformers, models/cohere.
 */
export const COMMAND_R: Architecture = {
  allows: { layerNorm: true },
  ending,
  build(b, h, rope) {
    const headLayerNorms = b.file.tensors.has("blk.0.attn_q_norm.weight");
    return buildLlama(b, h, rope, { ...COMMAND, headLayerNorms });
  },
};

/**
 * Command R7B and A, and Tiny Aya: Command R with a window in most layers. Layers without a window have no
 * positions. Source: "Command A" (arXiv 2504.00698).
 */
export const COHERE2: Architecture = {
  ...COMMAND_R,
  build(b, h, rope) {
    const keys = windowed(b);
    const table = ropeTable(b, rope.angles());
    const sights = readWindows(keys, h, h.blockCount).map((window): Sight => window ? { window, table } : {});
    return buildLlama(b, h, rope, { ...COMMAND, sights });
  },
};

/**
 * North Mini and Command A+: Command R7B's layers with sigmoid-weighted experts after the leading dense
 * layers. Shared experts count as much as the chosen ones; their sum is halved. Leading layers always have
 * positions. Norms are LayerNorms where the file has no RMSNorm epsilon. Source: Hugging Face transformers,
 * models/cohere2_moe.
 */
export const COHERE2MOE: Architecture = {
  allows: { experts: true, eitherEpsilon: true },
  ending: (keys) => ({ ...ending(keys), layerNorm: hasLayerNorm(keys) }),
  build: buildCohere2Moe,
};

const hasLayerNorm = (keys: ArchitectureKeys) => !keys.has("attention.layer_norm_rms_epsilon");

function buildCohere2Moe(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = windowed(b);
  const layers = leaveOutDrafting(b, h);
  const known = ["expert_shared_count", "expert_weights_scale"] as const;
  const chosen = readExpertHparams(b.file, h, "sigmoid by default", known);
  const experts = { ...chosen, shared: statedWidth(keys, chosen.feedForwardLength) };
  const denseLayers = keys.leadingDenseLayers(h.blockCount);
  const { divided, scale = 1 } = readWeighed(keys);
  const times = experts.shared > 0 ? 0.5 : 1;
  const table = ropeTable(b, rope.angles());
  const windows = readWindows(keys, h, layers, { fullFirst: true });
  return buildLlama(b, { ...h, layers: h.layers.slice(0, layers) }, rope, {
    ...COMMAND,
    layerNorms: hasLayerNorm(keys),
    sights: windows.map((window, layer): Sight =>
      window ? { window, table } : layer < denseLayers ? { table } : {}
    ),
    feedForward(x, addTo, name, layer) {
      if (layer < denseLayers) return feedForward(b, x, h.feedForwardLength, name, { addTo });
      const weighed = { sigmoid: true, divided, scale: scale * times };
      return sharedMixture(b, x, experts, name, { addTo, times }, weighed);
    },
  });
}
