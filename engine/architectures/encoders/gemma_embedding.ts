import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { ModelPooling } from "../../gguf/hparams/pooling.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { GEMMA3, GEMMA3_WINDOWS, gemmaTraits } from "../decoders/gemma.ts";
import type { Family } from "../family.ts";
import { attendBothWays, poolNormed, separateHeads } from "./encoder.ts";
import { textRow } from "../text_row.ts";

const MAX_FEATURES = 131_072;

/**
 * EmbeddingGemma: Gemma 3's layers with attention in both directions. The mean of the rows passes two
 * matrices where the file has them. Source: "EmbeddingGemma" (arXiv 2509.20354).
 */
export const GEMMA_EMBEDDING: Family = {
  architecture: "gemma-embedding",
  traits: GEMMA3.traits,
  allows: { bothDirections: true },
  ending: () => ({ encoder: true }),
  read: (b, h, rope) => ({
    ...gemmaTraits(b, h, rope, GEMMA3_WINDOWS),
    attention: {
      attend: (x, _, name, { table, window }) =>
        attendBothWays(b, separateHeads(b, x, h, name), h, { table: table!, window, headNorms: true }, name),
    },
  }),
  pooling: "mean",
  pool: poolEmbedding,
};

function poolEmbedding(b: PlanBuilder, x: Value, h: Hparams, pooling: ModelPooling): Value {
  const pooled = poolNormed(b, x, h, pooling);
  if (!b.file.tensors.has("dense_2.weight") && !b.file.tensors.has("dense_3.weight")) return pooled;
  const keys = ArchitectureKeys.of(b.file.metadata);
  const features = textRow(b, pooled, "dense_2", keys.count("dense_2_feat_out", MAX_FEATURES));
  return textRow(b, features, "dense_3", h.embeddingLength);
}
