import { GgufError } from "../../gguf/errors.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Architecture } from "../architecture.ts";
import { buildHybrid } from "./qwen35.ts";
import { hybridMixture } from "./qwen35moe.ts";

/**
 * Qwen3-Next and Qwen3-Coder-Next: the hybrid with experts. Value heads keep the model's order: those that
 * share a key head are adjacent. Source: Hugging Face transformers, models/qwen3_next.
 */
export const QWEN3NEXT: Architecture = {
  allows: { experts: true },
  drafts: true,
  build: (b, h, rope) => {
    refuseRowsByHead(b.file);
    return buildHybrid(b, h, rope, hybridMixture(b, h), { inGroups: true });
  },
};

/**
 * Refuses early files: their converters wrote queries, keys, values and gates into one tensor, ordered by key
 * head.
 */
function refuseRowsByHead(file: GgufFile): void {
  const name = "blk.0.ssm_in.weight";
  if (!file.tensors.has(name)) return;
  const detail =
    "must be attn_qkv and attn_gate, as converters write them since January 2026: download a newer file of this model, " +
    "or convert it again";
  throw new GgufError("GGUF_HPARAM", detail, { field: `tensor "${name}"` });
}
