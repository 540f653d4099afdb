import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { buildLlama } from "../decoders/llama.ts";
import type { Rope } from "../parts/rope.ts";
import { attendBothWays, headsInTurn, layerHeads, poolEncoder, poolNormed } from "./encoder.ts";

/** What differs between encoders with Llama's layers. */
interface LlamaEncoderTraits {
  /** Rotated pairs are (2i, 2i + 1); otherwise (i, i + half). */
  readonly interleaved: boolean;
  /** A layer has one matrix for all heads, head by head, and one for gate and up. */
  readonly fused?: boolean;
}

/** Builds Llama's layers with attention in both directions. */
function buildEncoder(b: PlanBuilder, h: Hparams, rope: Rope, traits: LlamaEncoderTraits): Value {
  const { interleaved, fused } = traits;
  const table = ropeTable(b, rope.angles());
  return buildLlama(b, h, rope, {
    interleavedRope: interleaved,
    headNorms: false,
    fused,
    attention(x, layer, name) {
      const heads = fused ? headsInTurn(b, x, h, name) : layerHeads(b, x, h, name, layer);
      return attendBothWays(b, heads, h, { table, interleaved }, name);
    },
  });
}

const ENCODER = {
  allows: { bothDirections: true },
  ending: () => ({ encoder: true }),
} satisfies Partial<Architecture>;

/** EuroBERT, and Jina embeddings v5, which build on it. Source: "EuroBERT" (arXiv 2503.05500). */
export const EUROBERT: Architecture = {
  ...ENCODER,
  build: (b, h, rope) => buildEncoder(b, h, rope, { interleaved: false }),
  pooling: "mean",
  pool: poolNormed,
};

/** NVIDIA's embedding models that build on Llama. Source: "Llama-Embed-Nemotron-8B" (arXiv 2511.07025). */
export const LLAMA_EMBED: Architecture = {
  ...ENCODER,
  build(b, h, rope) {
    b.leaveOut((name) => name === "output.weight");
    return buildEncoder(b, h, rope, { interleaved: true });
  },
  pooling: "mean",
  pool: poolNormed,
};

/**
 * NeoBERT. Files keep the checkpoint's order: query, key and value rows of one head, then of the next. compy
 * computes that order; llama.cpp reads another. Source: "NeoBERT" (arXiv 2502.19587).
 */
export const NEO_BERT: Architecture = {
  ...ENCODER,
  build(b, h, rope) {
    if (h.headCountKv !== h.headCount) {
      const keys = ArchitectureKeys.of(b.file.metadata);
      keys.refuse("attention.head_count_kv", String(h.headCountKv), `the ${h.headCount} heads`);
    }
    const x = buildEncoder(b, h, rope, { interleaved: true, fused: true });
    return rmsNorm(b, x, "enc.output_norm", h.epsilon);
  },
  pooling: "cls",
  pool: (b, x, h, pooling) => poolEncoder(b, x, h, pooling, { of: "cls", activation: "tanh" }),
};
