import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "../decoders/llama.ts";
import { attendBothWays, layerHeads, poolNormed } from "./encoder.ts";

/**
 * Llama's layers, attending in both directions. `interleaved` says which pairs are rotated: (2i, 2i + 1), or (i, i + half); `leftOut` is a
 * tensor that files may have and no text is computed with.
 */
function llamaEncoder(interleaved: boolean, leftOut?: string): Architecture {
  return {
    allows: { bothDirections: true },
    ending: () => ({ encoder: true }),
    build(b, h, rope) {
      const table = ropeTable(b, rope.angles());
      b.leaveOut((name) => name === leftOut);
      return buildLlama(b, h, rope, {
        interleavedRope: interleaved,
        headNorms: false,
        attention: (x, layer, name) =>
          attendBothWays(b, layerHeads(b, x, h, name, layer), h, { table, interleaved }, name),
      });
    },
    pooling: "mean",
    pool: poolNormed,
  };
}

/** EuroBERT, and Jina embeddings v5 made of it. Source: "EuroBERT" (arXiv 2503.05500). */
export const EUROBERT = llamaEncoder(false);
/** NVIDIA's embedding models made of Llama. Source: "Llama-Embed-Nemotron-8B" (arXiv 2511.07025). */
export const LLAMA_EMBED = llamaEncoder(true, "output.weight");
