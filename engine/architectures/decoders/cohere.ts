/** Cohere's decoders: attention and feed-forward read the same LayerNorm output in parallel. */
import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { type Checkpoint, MAX, refuseOtherWindows } from "../checkpoint.ts";
import type { Family } from "../family.ts";
import { leaveOutDrafting } from "../left_out.ts";
import type { DecoderTraits } from "../parts/decoder.ts";
import type { Rope } from "../parts/rope.ts";
import { feedForward, readWeighed, sharedMixture, statedWidth } from "../parts/shared_experts.ts";
import { type LayerAttention, readWindows, windowed } from "../parts/windows.ts";
import type { Traits } from "../traits.ts";

/** Layers per period. The last layer of a period has no window. */
const PERIOD = 4;
const LAYERS: Traits = { interleavedRope: true, layerNorms: true, parallel: true };

/** The logit scale is required: checkpoints differ, so no default is right for all. */
const ending = (keys: ArchitectureKeys) => ({ logits: { scale: keys.positive("logit_scale", MAX.scale) } });

/** What all of Cohere's checkpoints have in common. */
export const COHERE_CHECKPOINT: Checkpoint = {
  keys: { epsilon: "layer_norm_eps" },
  pairsKept: true,
  scalings: [],
  tied: true,
  // Command R's first files have their training context under another name.
  prepare: (config) =>
    config.with({
      max_position_embeddings: config.get("model_max_length") ?? config.get("max_position_embeddings"),
    }),
  entries: (config) => [["logit_scale", "FLOAT32", config.positive("logit_scale", MAX.scale)]],
};

/**
 * Command R, Aya 23 and Aya Expanse 8B. Command R+ also has norms on the query and key heads. Source: Hugging Face
 * transformers, models/cohere.
 */
const COMMAND_R: Family = {
  architecture: "command-r",
  traits: LAYERS,
  ending,
  read: (b) => ({ headLayerNorms: b.file.tensors.has("blk.0.attn_q_norm.weight") }),
  checkpoints: {
    cohere: {
      ...COHERE_CHECKPOINT,
      traits: (config) => ({ headLayerNorms: config.boolean("use_qk_norm", false) }),
    },
  },
};

/**
 * Command R7B and A, and Tiny Aya: Command R with a window in most layers. Layers without a window have no
 * positions. Source: "Command A" (arXiv 2504.00698).
 */
const COHERE2: Family = {
  architecture: "cohere2",
  traits: LAYERS,
  ending,
  read(b, h, rope) {
    const keys = windowed(b);
    const table = ropeTable(b, rope.angles());
    const windows = readWindows(keys, h, h.blockCount);
    return { perLayer: windows.map((window): LayerAttention => window ? { window, table } : {}) };
  },
  checkpoints: {
    cohere2: {
      ...COHERE_CHECKPOINT,
      mustBe: [
        ["rotary_pct", 1, "whole heads are rotated"],
        ["sliding_window_pattern", PERIOD, "GGUF's readers expect every fourth layer to have no window"],
      ],
      prepare(config) {
        refuseOtherWindows(config, PERIOD);
        return COHERE_CHECKPOINT.prepare!(config);
      },
      entries: (config, decoder) => [
        ...COHERE_CHECKPOINT.entries!(config, decoder),
        ["attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)],
      ],
    },
  },
};

/**
 * North Mini and Command A+: Command R7B's layers with sigmoid-weighted experts after the leading dense
 * layers. Shared experts count as much as the chosen ones; their sum is halved. Leading layers always have
 * positions. Norms are LayerNorms where the file has no RMSNorm epsilon. Source: Hugging Face transformers,
 * models/cohere2_moe.
 */
export const COHERE2MOE: Family = {
  architecture: "cohere2moe",
  traits: { ...LAYERS, layerNorms: undefined },
  allows: { experts: true, eitherEpsilon: true },
  ending: (keys) => ({ ...ending(keys), layerNorm: hasLayerNorm(keys) }),
  read: readCohere2Moe,
};

const hasLayerNorm = (keys: ArchitectureKeys) => !keys.has("attention.layer_norm_rms_epsilon");

function readCohere2Moe(b: PlanBuilder, h: Hparams, rope: Rope): DecoderTraits {
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
  return {
    layerCount: layers,
    layerNorms: hasLayerNorm(keys),
    perLayer: windows.map((window, layer): LayerAttention =>
      window ? { window, table } : layer < denseLayers ? { table } : {}
    ),
    feedForward(x, addTo, name, layer) {
      if (layer < denseLayers) return feedForward(b, x, h.feedForwardLength, name, { addTo });
      const weighed = { sigmoid: true, divided, scale: scale * times };
      return sharedMixture(b, x, experts, name, { addTo, times }, weighed);
    },
  };
}

export const COHERES: readonly Family[] = [COMMAND_R, COHERE2, COHERE2MOE];
