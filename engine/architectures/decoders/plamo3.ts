import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { buildPostNormed } from "./post_normed.ts";

/** Layers per period. The last layer of a period has no window. */
const PERIOD = 8;
/** Default rotary base of layers with a window. */
const NEAR_BASE = 10_000;

/**
 * PLaMo 3: GLM-4's layers with head norms and fused q, k and v. Layers with a window have their own rotary
 * base. A window counts the tokens before a row, as in the checkpoints; llama.cpp also counts the row itself.
 * Post-norm tensors have no `.weight` in their names. Source: mlx-lm, models/plamo3.py.
 */
export const PLAMO3: Architecture = {
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    // PLaMo's YaRN does not round the pair limits between which frequencies change, unlike the YaRN that
    // compy computes.
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
