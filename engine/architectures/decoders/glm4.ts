import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { buildPostNormed } from "./post_normed.ts";

/**
 * GLM-4 and GLM-Z1 of 2025: norms before and after attention and feed-forward, partial rotation, gate and up
 * in one matrix. Source: Hugging Face transformers, models/glm4.
 */
export const GLM4: Architecture = {
  build(b, h, rope) {
    const table = ropeTable(b, rope.angles());
    return buildPostNormed(b, h, h.layers.map(() => ({ table, interleaved: true })), { normedTwice: true });
  },
};
