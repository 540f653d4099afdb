import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type ExpertHparams, readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { RouteOptions } from "../../plan/ops/route.ts";
import type { TensorName } from "../architecture.ts";
import { chooseBlocks, readBlockIndexer } from "../parts/lightning_indexer.ts";
import { mixture } from "../parts/mixture.ts";
import { decoderKeys, type Family } from "../family.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { refuseSections } from "../parts/rope_sections.ts";
import { type LayerAttention, readWindows, windowed, windowsOf } from "../parts/windows.ts";
import {
  biasOfChoice,
  countedWidth,
  feedForward,
  type GatedUnit,
  readWeighed,
  type SharedExperts,
  sharedMixture,
  statedWidth,
} from "../parts/shared_experts.ts";

/** Sigmoid-weighted experts after the leading dense layers, with shared experts as one wide expert. */
export interface SigmoidExperts extends SharedExperts {
  /** Leading layers that have no experts. */
  readonly denseLayers: number;
  /** How experts are weighed, and the groups they are chosen from. */
  readonly weighed: Pick<RouteOptions, "divided" | "scale" | "groups">;
}

/**
 * Reads the file's sigmoid-weighted experts. Each shared expert is as wide as the key `sharedLength` says, by
 * default as the others; with `together`, the file states the width of all shared experts. Groups are refused
 * unless `inGroups`.
 */
export function readSigmoidExperts(
  file: GgufFile,
  h: Hparams,
  { sharedLength, together = false, inGroups = false }: {
    sharedLength?: string;
    together?: boolean;
    inGroups?: boolean;
  } = {},
): SigmoidExperts {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const plain = ["expert_shared_count", "expert_weights_scale"] as const;
  const known = inGroups ? [...plain, "expert_group_count"] as const : plain;
  const experts = readExpertHparams(file, h, "sigmoid by default", known);
  const own = sharedLength ? keys.metadata.getCount(keys.name(sharedLength), 0) : 0;
  return {
    ...experts,
    shared: (together ? statedWidth : countedWidth)(keys, own || experts.feedForwardLength),
    denseLayers: keys.leadingDenseLayers(h.blockCount, 0),
    weighed: {
      ...readWeighed(keys),
      groups: inGroups ? readGroups(file, h, experts) : undefined,
    },
  };
}

/** Reads the number of equally large expert groups and how many of them a row may use. */
export function readGroups(
  file: GgufFile,
  h: Hparams,
  { count, used }: ExpertHparams,
): RouteOptions["groups"] {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const [all, some] = ["expert_group_count", "expert_group_used_count"];
  const groups = keys.metadata.getCount(keys.name(all), 0);
  if (groups <= 1) return undefined;
  const each = count / groups;
  if (!Number.isInteger(each) || each < 2) {
    keys.refuse(all, String(groups), `a divisor of the ${count} experts that leaves two at least in a group`);
  }
  const chosen = keys.count(some, groups);
  if (used > chosen * each) {
    keys.refuse(
      some,
      String(chosen),
      `enough for the ${used} experts that a row chooses, with ${each} in a group`,
    );
  }
  return { count: groups, used: chosen };
}

/** The gated units of a layer: of its chosen experts, and of its shared experts or dense block. */
export interface LayerUnits {
  readonly chosen: GatedUnit;
  readonly shared: GatedUnit;
}

/**
 * Returns the layer count and the feed-forward blocks of a decoder with sigmoid-weighted experts. `unitsOf` returns the
 * gated units of a layer, by default SwiGLU. Draft layers are left out.
 */
export function withExperts(
  b: PlanBuilder,
  h: Hparams,
  experts: SigmoidExperts,
  unitsOf?: (layer: number) => LayerUnits,
) {
  return {
    layerCount: leaveOutDrafting(b, h),
    feedForward(x: Value, addTo: Value, name: TensorName, layer: number): void {
      const units = unitsOf?.(layer);
      if (layer < experts.denseLayers) {
        return void feedForward(b, x, h.feedForwardLength, name, { addTo }, units?.shared);
      }
      const bias = biasOfChoice(b, name) ?? name("exp_probs_b.bias");
      const options = { ...experts.weighed, ...units?.chosen, sigmoid: true, bias };
      sharedMixture(b, x, { ...experts, sharedUnit: units?.shared }, name, { addTo }, options);
    },
  };
}

/**
 * GLM-4.5 and 4.6, including Air: partial rotation; larger models norm their heads. Sources: "GLM-4.5" (arXiv
 * 2508.06471); Hugging Face transformers, models/glm4_moe.
 */
export const GLM4MOE: Family = {
  architecture: "glm4moe",
  traits: { feedForwardNorm: "post_attention_norm" },
  allows: { experts: true },
  drafts: true,
  read(b, h) {
    refuseSections(decoderKeys(b));
    return {
      ...withExperts(b, h, readSigmoidExperts(b.file, h)),
      headNorms: b.file.tensors.has("blk.0.attn_q_norm.weight"),
    };
  },
};

/**
 * Ling 2.0 and Ring 2.0: fused q, k and v, norms of heads, partial rotation, and experts chosen within
 * groups. Source: modeling_bailing_moe_v2.py beside the checkpoints (inclusionAI).
 */
export const BAILINGMOE2: Family = {
  architecture: "bailingmoe2",
  traits: { headNorms: true, fusedHeads: true },
  allows: { experts: true },
  drafts: true,
  read(b, h) {
    const options = { sharedLength: "expert_shared_feed_forward_length", inGroups: true };
    return withExperts(b, h, readSigmoidExperts(b.file, h, options));
  },
};

/**
 * K-EXAONE: norms of heads, and a window in all layers but every fourth or as the file says. Layers without a
 * window have no positions. Sources: Hugging Face transformers, models/exaone_moe; llama.cpp,
 * src/models/exaone-moe.cpp.
 */
export const EXAONE_MOE: Family = {
  architecture: "exaone-moe",
  traits: { headNorms: true },
  allows: { experts: true },
  read(b, h, rope) {
    const keys = windowed(b);
    const traits = withExperts(b, h, readSigmoidExperts(b.file, h, { together: true }));
    const table = ropeTable(b, rope.angles());
    const windows = readWindows(keys, h, traits.layerCount);
    return { ...traits, perLayer: windows.map((window): LayerAttention => window ? { window, table } : {}) };
  },
};

/**
 * Hy3: Qwen3's attention. Files do not count the leading dense layers, so the first router ends them.
 * Sources: Hugging Face transformers, models/hy_v3; llama.cpp, src/models/hy-v3.cpp.
 */
export const HY_V3: Family = {
  architecture: "hy_v3",
  traits: { headNorms: true },
  allows: { experts: true },
  drafts: true,
  read(b, h) {
    const layers = Array.from({ length: h.blockCount }, (_, layer) => layer);
    const first = layers.find((layer) => b.file.tensors.has(`blk.${layer}.ffn_gate_inp.weight`));
    const experts = readSigmoidExperts(b.file, h, { together: true });
    return withExperts(b, h, { ...experts, denseLayers: first ?? h.blockCount });
  },
};

/** dots.llm1: Qwen3's attention and GLM-4.5's experts. Source: Hugging Face transformers, models/dots1. */
export const DOTS1: Family = {
  architecture: "dots1",
  traits: { headNorms: true },
  allows: { experts: true },
  read: (b, h) => withExperts(b, h, readSigmoidExperts(b.file, h)),
};

/**
 * MiMo V2 Flash: layers with a window have their own KV heads, rotary base and sinks. Value heads are narrower than key
 * heads, and values are scaled. A layer without a router has no experts. Sources: Hugging Face transformers,
 * models/mimo_v2_flash; llama.cpp, src/models/mimo2.cpp.
 */
export const MIMO2: Family = {
  architecture: "mimo2",
  traits: {},
  allows: { experts: true, layersDiffer: true, valuesDiffer: true },
  read(b, h, rope) {
    const keys = windowed(b);
    if (h.valueLength > h.keyLength) {
      keys.refuse("attention.value_length", String(h.valueLength), `at most the key length ${h.keyLength}`);
    }
    refuseMissing(h, keys);
    const experts = readExpertHparams(b.file, h, "sigmoid by default", ["expert_weights_scale"]);
    const weighed = { divided: true, scale: keys.scale("expert_weights_scale", 1), sigmoid: true };
    const layerCount = leaveOutDrafting(b, h);
    const [full, near] = [h.ropeFreqBase, keys.ropeBase(h.ropeFreqBase, "_swa")].map((base) =>
      ropeTable(b, rope.angles({ base }))
    );
    const windows = windowsOf(keys, h.blockCount);
    const has = (tensor: string) => b.file.tensors.has(`${tensor}.weight`);
    return {
      layerCount,
      fusedHeads: has("blk.0.attn_qkv"),
      valueDim: h.valueLength,
      scales: { values: keys.scale("attention.value_scale", 1) },
      perLayer: windows.map((window, layer) => ({
        window,
        table: window ? near : full,
        sinks: has(`blk.${layer}.attn_sinks`),
      })),
      feedForward(x, addTo, name) {
        if (!has(name("ffn_gate_inp"))) return void feedForward(b, x, h.feedForwardLength, name, { addTo });
        mixture(b, x, addTo, experts, name, { ...weighed, bias: biasOfChoice(b, name) });
      },
    };
  },
};

/** The gated unit of MiniMax M3's experts and dense blocks. */
const CLAMPED: GatedUnit = { activation: "swiglu_oai" };

/**
 * MiniMax M3: partial rotation, head norms, GLM-4.5's experts, and gpt-oss's clamped SwiGLU in all blocks. After the
 * leading dense layers, an indexer chooses blocks of tokens for each row and KV head. Sources: Hugging Face
 * transformers, models/minimax_m3_vl; llama.cpp, src/models/minimax-m3.cpp.
 */
export const MINIMAX_M3: Family = {
  architecture: "minimax-m3",
  traits: { headNorms: true },
  allows: { experts: true },
  read(b, h, rope) {
    const experts = readSigmoidExperts(b.file, h);
    const indexer = readBlockIndexer(b.file, h);
    const traits = withExperts(b, h, experts, () => ({ chosen: CLAMPED, shared: CLAMPED }));
    const table = ropeTable(b, rope.angles());
    const chooseFor: LayerAttention["chooseFor"] = (x, name) => chooseBlocks(b, x, table, indexer, name);
    const perLayer = h.layers.map((_, layer): LayerAttention =>
      layer < experts.denseLayers ? { table } : { table, chooseFor }
    );
    return { ...traits, perLayer };
  },
};

/** Refuses layers without heads, KV heads or a dense width, which other architectures may have. */
function refuseMissing(h: Hparams, keys: ArchitectureKeys): void {
  for (const { heads, kvHeads } of h.layers) {
    if (heads !== h.headCount) keys.refuse("attention.head_count", String(heads), "the same in all layers");
    if (kvHeads === 0) keys.refuse("attention.head_count_kv", "0", "at least 1 in each layer");
  }
}

export const SIGMOID_EXPERTS: readonly Family[] = [
  GLM4MOE,
  BAILINGMOE2,
  EXAONE_MOE,
  HY_V3,
  DOTS1,
  MIMO2,
  MINIMAX_M3,
];
