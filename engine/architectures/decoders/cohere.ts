import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama, type LlamaTraits } from "./llama.ts";
import { readWindows, type Sight } from "../parts/windows.ts";

const MAX_LOGIT_SCALE = 1e9;

const COMMAND: LlamaTraits = { interleavedRope: true, headNorms: false, layerNorms: true, parallel: true };

/**
 * Cohere's Command R, Aya 23 and Aya Expanse 8B: both halves of a layer read its rows through one LayerNorm; Command R+ norms its heads
 * too. Source: Hugging Face transformers, models/cohere.
 */
export const COMMAND_R: Architecture = {
  allows: { layerNorm: true },
  // Files say it: the checkpoints differ, and no default is right for all.
  ending: (keys) => ({ logits: { scale: keys.positive("logit_scale", MAX_LOGIT_SCALE) } }),
  build(b, h, rope) {
    const headLayerNorms = b.file.tensors.has("blk.0.attn_q_norm.weight");
    return buildLlama(b, h, rope, { ...COMMAND, headLayerNorms });
  },
};

/**
 * Command R7B and A, and Tiny Aya: the same with a window in most layers; those that see everything have no positions. Source: "Command
 * A" (arXiv 2504.00698).
 */
export const COHERE2: Architecture = {
  ...COMMAND_R,
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    if (keys.window() === 0) keys.refuse("attention.sliding_window", "0", "at least 1");
    const table = ropeTable(b, rope.angles());
    const sights = readWindows(keys, h, h.blockCount).map((window): Sight => window ? { window, table } : {});
    return buildLlama(b, h, rope, { ...COMMAND, sights });
  },
};
