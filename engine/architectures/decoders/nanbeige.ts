import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";

/** Layers of all passes together. */
const MAX_DEPTH = 1024;

/**
 * Nanbeige 4.2: Llama's decoder, whose rows go through all layers several times; each pass keeps keys and values of its own, and the last
 * norm is between passes too, unless the file says otherwise. Source: SGLang, srt/models/nanbeige.py.
 */
export const NANBEIGE: Architecture = {
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const count = keys.count("num_loops", Math.floor(MAX_DEPTH / h.blockCount), 1);
    const normed = !b.file.metadata.getBoolean(keys.name("skip_loop_final_norm"), false);
    return buildLlama(b, h, rope, { interleavedRope: true, headNorms: false, passes: { count, normed } });
  },
};
