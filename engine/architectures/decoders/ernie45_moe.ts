import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Family } from "../family.ts";
import {
  biasOfChoice,
  feedForward,
  type SharedExperts,
  sharedMixture,
  statedWidth,
} from "../parts/shared_experts.ts";

/**
 * ERNIE 4.5's mixtures of experts: Llama's decoder with experts in every n-th layer after the leading dense
 * ones. A bias affects only which experts are chosen; their weights come from the softmax over all experts.
 * Shared experts run as one wide expert. Source: Hugging Face transformers, models/ernie4_5_moe.
 */
export const ERNIE45_MOE: Family = {
  architecture: "ernie4_5-moe",
  traits: { interleavedRope: true },
  allows: { experts: true },
  read(b, h) {
    const experts = readErnieExperts(b.file, h);
    return {
      feedForward(x, addTo, name, layer) {
        const hasExperts = layer >= experts.denseLayers && (layer + 1) % experts.interval === 0;
        if (!hasExperts) return feedForward(b, x, h.feedForwardLength, name, { addTo });
        const bias = biasOfChoice(b, name);
        return sharedMixture(b, x, experts, name, { addTo }, { bias });
      },
    };
  },
};

interface ErnieExperts extends SharedExperts {
  /** Leading layers that have no experts. */
  readonly denseLayers: number;
  /** Of the remaining layers, every `interval`-th has experts. */
  readonly interval: number;
}

function readErnieExperts(file: GgufFile, h: Hparams): ErnieExperts {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const experts = readExpertHparams(file, h, "softmax over all", ["expert_shared_count"]);
  const denseLayers = keys.leadingDenseLayers(h.blockCount);
  const interval = keys.count("interleave_moe_layer_step", h.blockCount);
  return { ...experts, shared: statedWidth(keys, experts.feedForwardLength), denseLayers, interval };
}
