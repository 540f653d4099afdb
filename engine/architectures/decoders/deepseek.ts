import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import { decoderKeys, type Family } from "../family.ts";
import { countedWidth, feedForward, readWeighed, sharedMixture } from "../parts/shared_experts.ts";

/**
 * DeepSeekMoE, DeepSeek's first mixture of experts: Llama's decoder with experts after the leading dense
 * layers. The softmax over all experts weighs the chosen ones. Shared experts run as one wide expert.
 * Sources: "DeepSeekMoE" (arXiv 2401.06066); modeling_deepseek.py beside the checkpoints (deepseek-ai).
 */
export const DEEPSEEK: Family = {
  architecture: "deepseek",
  traits: { interleavedRope: true },
  allows: { experts: true },
  read(b, h) {
    const keys = decoderKeys(b);
    const known = ["expert_shared_count", "expert_weights_scale"] as const;
    const chosen = readExpertHparams(b.file, h, "softmax over all", known);
    const experts = { ...chosen, shared: countedWidth(keys, chosen.feedForwardLength) };
    const denseLayers = keys.leadingDenseLayers(h.blockCount, 0);
    const weighed = readWeighed(keys);
    return {
      feedForward(x, addTo, name, layer) {
        if (layer < denseLayers) return feedForward(b, x, h.feedForwardLength, name, { addTo });
        return sharedMixture(b, x, experts, name, { addTo }, weighed);
      },
    };
  },
};

/** Ling Lite. */
export const BAILINGMOE: Family = { ...DEEPSEEK, architecture: "bailingmoe" };
