import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type ExpertHparams, readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams, RopeScaling } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { RouteOptions } from "../../plan/ops/route.ts";
import type { RopeOptions } from "../../plan/ops/rope_append.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { decoderKeys, type Family } from "../family.ts";
import { latentAttention, latentKeys, readLatentHeads } from "../parts/latent_attention.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { Rope } from "../parts/rope.ts";
import {
  biasOfChoice,
  countedWidth,
  feedForward,
  readWeighed,
  type SharedExperts,
  sharedMixture,
} from "../parts/shared_experts.ts";
import { readGroups } from "./sigmoid_experts.ts";

/**
 * DeepSeek V2 and V3, and models with their layers: GLM-4.7 Flash, Moonlight, Kimi K2, GigaChat 3, Youtu,
 * Mistral Large 3. Latent attention; chosen and shared experts after the leading dense layers. Sources:
 * "DeepSeek-V3" (arXiv 2412.19437); Hugging Face transformers, models/deepseek_v2, deepseek_v3 and
 * glm4_moe_lite.
 */
export const DEEPSEEK2: Family = {
  architecture: "deepseek2",
  traits: { interleavedRope: true },
  allows: { experts: true, valuesDiffer: true },
  drafts: true,
  read(b, h) {
    const keys = decoderKeys(b);
    const layerCount = leaveOutDrafting(b, h);
    const scaling = readScaling(keys, h);
    const latent = readLatentHeads(b.file, h);
    const temperature = readTemperature(keys, h);
    const heads = { ...latent, scale: latent.scale * scaling.scores, temperature };
    const table = ropeTable(b, new Rope({ ...h, ropeScaling: scaling.rope }).angles());
    const denseLayers = keys.leadingDenseLayers(h.blockCount, 0);
    const experts = denseLayers < layerCount ? readExperts(b.file, h) : undefined;
    return {
      layerCount,
      attention: {
        attend: (x, _, name) => latentAttention(b, x, table, heads, name),
        keys: (x, _, name) => latentKeys(b, x, table, heads, name),
      },
      feedForward(x, addTo, name, layer) {
        if (!experts || layer < denseLayers) {
          return feedForward(b, x, h.feedForwardLength, name, { addTo });
        }
        const bias = biasOfChoice(b, name);
        return sharedMixture(b, x, experts, name, { addTo }, { ...experts.weighed, bias });
      },
    };
  },
};

/** Mistral Small 4: DeepSeek's decoder. Source: Hugging Face transformers, models/mistral4. */
export const MISTRAL4: Family = { ...DEEPSEEK2, architecture: "mistral4" };

/** Reads how queries grow beyond a number of tokens, by default the original context. Source: as readScaling. */
function readTemperature(keys: ArchitectureKeys, h: Hparams): RopeOptions["temperature"] {
  const beta = keys.scale("attention.temperature_scale", 0);
  if (beta === 0) return undefined;
  return { beta, period: keys.count("attention.temperature_length", h.contextLength, h.ropeOriginalContext) };
}

/**
 * Reads YaRN, whose temperature scales all attention scores here instead of the rotated rows. The key holds a
 * tenth of YaRN's log multiplier. Source: llama.cpp, src/models/deepseek2.cpp.
 */
function readScaling(keys: ArchitectureKeys, h: Hparams): { rope: RopeScaling; scores: number } {
  const magnitude = "rope.scaling.attn_factor";
  if (h.ropeMagnitude !== 1) keys.refuse(magnitude, String(h.ropeMagnitude), "1 in this architecture");
  const rope = h.ropeScaling;
  if (rope.type !== "yarn") return { rope, scores: 1 };
  const multiplier = "rope.scaling.yarn_log_multiplier";
  if (!keys.has(multiplier)) keys.refuse(multiplier, "nothing", "a number, with YaRN in this architecture");
  const scores = (1 + rope.logMultiplier * Math.log(rope.factor)) ** 2;
  return { rope: { ...rope, logMultiplier: 1 }, scores };
}

interface LatentExperts extends SharedExperts {
  readonly weighed: Pick<RouteOptions, "sigmoid" | "divided" | "scale" | "groups">;
}

function readExperts(file: GgufFile, h: Hparams): LatentExperts {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const sigmoid = scoresAreSigmoids(file, keys);
  const known = ["expert_shared_count", "expert_weights_scale"] as const;
  const experts: ExpertHparams = sigmoid
    ? readExpertHparams(file, h, "sigmoid by default", [...known, "expert_group_count"])
    : readExpertHparams(file, h, "softmax over all", known);
  return {
    ...experts,
    shared: countedWidth(keys, experts.feedForwardLength),
    weighed: {
      sigmoid,
      ...readWeighed(keys),
      groups: sigmoid ? readGroups(file, h, experts) : undefined,
    },
  };
}

/** Without the gating key, a bias on the choice means sigmoids: GLM-4.7 Flash's first files lack the key. */
function scoresAreSigmoids(file: GgufFile, keys: ArchitectureKeys): boolean {
  const gating = keys.metadata.getCount(keys.name("expert_gating_func"), 0);
  if (gating !== 0) return gating === 2;
  return [...file.tensors.keys()].some((name) => name.endsWith(".exp_probs_b.bias"));
}
