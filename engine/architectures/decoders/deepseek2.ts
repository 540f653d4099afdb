import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type ExpertHparams, readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams, RopeScaling } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { Choices } from "../../plan/ops/choose.ts";
import type { RouteOptions } from "../../plan/ops/route.ts";
import type { RopeOptions } from "../../plan/ops/rope_append.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { decoderKeys, type Family } from "../family.ts";
import { latentAttention, latentKeys, readJoinedHeads, readLatentHeads } from "../parts/latent_attention.ts";
import { layersBeforeDrafts, leaveOutDrafting } from "../left_out.ts";
import type { DecoderTraits } from "../parts/decoder.ts";
import { chooseTokens, type Indexer, readIndexer } from "../parts/lightning_indexer.ts";
import { refuseSections } from "../parts/rope_sections.ts";
import { Rope } from "../parts/rope.ts";
import {
  biasOfChoice,
  countedWidth,
  feedForward,
  readWeighed,
  type SharedExperts,
  sharedMixture,
  statedWidth,
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
  read: latentLayers,
};

/** Builds the layers of DeepSeek V2 and V3. With an indexer, a layer's rows attend to the tokens that `sparse` chooses. */
function latentLayers(
  b: PlanBuilder,
  h: Hparams,
  _: Rope,
  sparse?: Indexer & { full: readonly boolean[] },
): DecoderTraits {
  const keys = decoderKeys(b);
  const layerCount = leaveOutDrafting(b, h);
  const scaling = readScaling(keys, h);
  const latent = readLatentHeads(b.file, h);
  const temperature = readTemperature(keys, h);
  const heads = { ...latent, scale: latent.scale * scaling.scores, temperature };
  const table = ropeTable(b, new Rope({ ...h, ropeScaling: scaling.rope }).angles());
  const denseLayers = keys.leadingDenseLayers(h.blockCount, 0);
  const experts = denseLayers < layerCount ? readExperts(b.file, h) : undefined;
  let chosen: Choices | undefined;
  return {
    layerCount,
    attention: {
      attend(x, layer, name) {
        const chooseFor = sparse && ((x: Value, latent: Value) => {
          if (sparse.full[layer]) chosen = chooseTokens(b, x, latent, table, sparse, name);
          return chosen!;
        });
        return latentAttention(b, x, table, heads, name, chooseFor);
      },
      keys: (x, _, name) => latentKeys(b, x, table, heads, name),
    },
    feedForward(x, addTo, name, layer) {
      if (!experts || layer < denseLayers) {
        return void feedForward(b, x, h.feedForwardLength, name, { addTo });
      }
      const bias = biasOfChoice(b, name);
      sharedMixture(b, x, experts, name, { addTo }, { ...experts.weighed, bias });
    },
  };
}

/**
 * DeepSeek V3.2: V3's decoder, whose rows attend to the tokens that an indexer chooses. Sources: "DeepSeek-V3.2" (arXiv
 * 2512.02556); Hugging Face transformers, models/deepseek_v32.
 */
export const DEEPSEEK32: Family = {
  ...DEEPSEEK2,
  architecture: "deepseek32",
  drafts: false,
  read: (b, h, rope) =>
    latentLayers(b, h, rope, {
      ...readIndexer(b.file, h, false),
      full: Array<boolean>(h.blockCount).fill(true),
    }),
};

/** Context from which on a GLM-5 file without the key shares choices between layers: that of GLM-5.2. */
const SHARED_CONTEXT = 1_048_576;

/**
 * GLM-5: DeepSeek V3.2 with other rotated pairs in the indexer. In GLM-5.2 most layers use the choices of an earlier
 * layer. Source: Hugging Face transformers, models/glm_moe_dsa.
 */
export const GLM_DSA: Family = {
  ...DEEPSEEK32,
  architecture: "glm-dsa",
  read: (b, h, rope) => latentLayers(b, h, rope, { ...readIndexer(b.file, h, true), full: readFull(b, h) }),
};

/** Returns which layers choose tokens themselves. */
function readFull(b: PlanBuilder, h: Hparams): boolean[] {
  const keys = decoderKeys(b);
  refuseSections(keys);
  const layers = layersBeforeDrafts(b.file, h);
  const name = "attention.indexer.types";
  // Source of the default: llama.cpp, src/models/glm-dsa.cpp.
  const full = keys.has(name) || h.contextLength < SHARED_CONTEXT
    ? keys.flags(name, layers)
    : Array.from({ length: layers }, (_, layer) => layer < 2 || layer % 4 === 2);
  if (!full[0]) keys.refuse(name, "false in the first layer", "true in the first layer");
  const shared = new Set(full.flatMap((own, layer) => own ? [] : [`blk.${layer}`]));
  b.leaveOut((tensor) => tensor.includes(".indexer.") && shared.has(tensor.split(".indexer.")[0]));
  return full;
}

/** MiniCPM3's scales. Files have no keys for them. */
export const MINICPM3_SCALES = { embedding: 12, depth: 1.4, baseWidth: 256 };

/**
 * MiniCPM3: MiniCPM's dense layers and scales, with latent attention and LongRoPE. One tensor holds the matrices of keys
 * and values. Sources: mlx-lm, models/minicpm3.py; llama.cpp, src/models/minicpm3.cpp.
 */
export const MINICPM3: Family = {
  architecture: "minicpm3",
  traits: {},
  allows: { valuesDiffer: true },
  ending: (_, h) => ({ logits: { scale: MINICPM3_SCALES.baseWidth / h.embeddingLength } }),
  read(b, h, rope) {
    const heads = readJoinedHeads(b.file, h, false);
    const table = ropeTable(b, rope.angles());
    return {
      scales: {
        embedding: MINICPM3_SCALES.embedding,
        residual: MINICPM3_SCALES.depth / Math.sqrt(h.blockCount),
      },
      attention: { attend: (x, _, name) => latentAttention(b, x, table, heads, name) },
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

export interface LatentExperts extends SharedExperts {
  readonly weighed: Pick<RouteOptions, "sigmoid" | "divided" | "scale" | "groups">;
}

/** Reads the chosen and shared experts. The file may state the width of all shared experts together. */
export function readExperts(file: GgufFile, h: Hparams): LatentExperts {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const sigmoid = scoresAreSigmoids(file, keys);
  const known = ["expert_shared_count", "expert_weights_scale"] as const;
  const experts: ExpertHparams = sigmoid
    ? readExpertHparams(file, h, "sigmoid by default", [...known, "expert_group_count"])
    : readExpertHparams(file, h, "softmax over all", known);
  return {
    ...experts,
    shared: (keys.has("expert_shared_feed_forward_length") ? statedWidth : countedWidth)(
      keys,
      experts.feedForwardLength,
    ),
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
