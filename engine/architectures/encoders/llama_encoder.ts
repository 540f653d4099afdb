/** Encoders that use Llama's layers with bidirectional attention. */
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import type { Checkpoint } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import { buildDecoder, type DecoderTraits } from "../parts/decoder.ts";
import type { Rope } from "../parts/rope.ts";
import { attendBothWays, headsInTurn, layerHeads, poolEncoder, poolNormed } from "./encoder.ts";

const ENCODER = {
  allows: { bothDirections: true },
  ending: () => ({ encoder: true }),
} satisfies Partial<Architecture>;

/** Codes of `pooling_type`, by their name in config.json. */
const POOLINGS: Readonly<Record<string, number>> = { avg: 1, cls: 2, last: 3 };

const CHECKPOINT: Checkpoint = {
  encoder: true,
  entries(config) {
    const pooling = config.has("pooling") ? config.string("pooling") : undefined;
    if (pooling !== undefined && !Object.hasOwn(POOLINGS, pooling)) {
      config.refuseValue("pooling", Object.keys(POOLINGS).map((name) => `"${name}"`).join(", "));
    }
    return [
      ["attention.causal", "BOOL", false],
      ...pooling === undefined ? [] : [["pooling_type", "UINT32", POOLINGS[pooling]] as const],
    ];
  },
};

/** EuroBERT, and Jina embeddings v5, which build on it. Source: "EuroBERT" (arXiv 2503.05500). */
const EUROBERT: Family = {
  ...ENCODER,
  architecture: "eurobert",
  traits: {},
  read: (b, h, rope) => bothWays(b, h, rope, {}),
  pooling: "mean",
  pool: poolNormed,
  checkpoints: { eurobert: CHECKPOINT },
};

/** NVIDIA's embedding models that build on Llama. Source: "Llama-Embed-Nemotron-8B" (arXiv 2511.07025). */
const LLAMA_EMBED: Family = {
  ...ENCODER,
  architecture: "llama-embed",
  traits: { interleavedRope: true },
  read(b, h, rope) {
    b.leaveOut((name) => name === "output.weight");
    return bothWays(b, h, rope, { interleavedRope: true });
  },
  pooling: "mean",
  pool: poolNormed,
  checkpoints: { llama_bidirec: { ...CHECKPOINT, scalings: ["linear", "llama3"] } },
};

export const LLAMA_ENCODERS: readonly Family[] = [EUROBERT, LLAMA_EMBED];

/**
 * NeoBERT. Files keep the checkpoint's order: query, key and value rows of one head, then of the next. compy
 * computes that order; llama.cpp reads another. Source: "NeoBERT" (arXiv 2502.19587).
 */
export const NEO_BERT: Architecture = {
  ...ENCODER,
  build(b, h, rope) {
    if (h.headCountKv !== h.headCount) {
      decoderKeys(b).refuse("attention.head_count_kv", String(h.headCountKv), `the ${h.headCount} heads`);
    }
    const traits = bothWays(b, h, rope, { interleavedRope: true, fusedHeads: true, fusedGate: true });
    return rmsNorm(b, buildDecoder(b, h, rope, traits), "enc.output_norm", h.epsilon);
  },
  pooling: "cls",
  pool: (b, x, h, pooling) => poolEncoder(b, x, h, pooling, { of: "cls", activation: "tanh" }),
};

/** Returns the traits for bidirectional attention. In a fused tensor, the q, k and v rows of a head are adjacent. */
function bothWays(b: PlanBuilder, h: Hparams, rope: Rope, traits: DecoderTraits): DecoderTraits {
  const table = ropeTable(b, rope.angles());
  return {
    ...traits,
    attention: {
      attend(x, layer, name) {
        const heads = traits.fusedHeads ? headsInTurn(b, x, h, name) : layerHeads(b, x, h, name, layer);
        return attendBothWays(b, heads, h, { table, interleaved: traits.interleavedRope ?? false }, name);
      },
    },
  };
}
