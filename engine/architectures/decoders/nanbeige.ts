import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "./llama.ts";

/** Limit of layers times passes. */
const MAX_DEPTH = 1024;

/**
 * Nanbeige 4.2: Llama's decoder, run several times over the same rows. Each pass has its own KV cache. The
 * final norm also runs between passes, unless the file says otherwise. Source: SGLang,
 * srt/models/nanbeige.py.
 */
export const NANBEIGE: Architecture = {
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const count = keys.count("num_loops", Math.floor(MAX_DEPTH / h.blockCount), 1);
    const normed = !b.file.metadata.getBoolean(keys.name("skip_loop_final_norm"), false);
    return buildLlama(b, h, rope, { interleavedRope: true, headNorms: false, passes: { count, normed } });
  },
};
