import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { buildPostNormed } from "./post_normed.ts";

/** One layer in so many has no window, the last of them. */
const PERIOD = 8;
/** The rotary base of the others, where the file does not say. */
const NEAR_BASE = 10_000;

/**
 * PLaMo 3: GLM-4's layers with a norm of each head, and queries, keys and values in one matrix; layers with a window have a rotary base of
 * their own. As in the checkpoints, a row sees so many tokens before its own, where llama.cpp counts its own among them. The norms behind
 * halves have no `.weight` in their names. Source: mlx-lm, models/plamo3.py.
 */
export const PLAMO3: Architecture = {
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    // Their YaRN does not round the pairs between which it changes frequencies, as that of others does.
    const { type, factor } = h.ropeScaling;
    if (type !== "none") keys.refuse("rope.scaling.factor", String(factor), "1 in this architecture");
    const window = keys.window();
    const slides = keys.windowLayers(h.blockCount, { period: PERIOD });
    const full = { table: ropeTable(b, rope.angles()), headNorms: true, fused: true };
    const near = window === 0 ? full : {
      ...full,
      table: ropeTable(b, rope.angles({ base: keys.ropeBase(NEAR_BASE, "_swa") })),
      window: window + 1,
    };
    const heads = slides.map((slides) => slides ? near : full);
    return buildPostNormed(b, h, heads, { normedTwice: true, weight: "" });
  },
};
