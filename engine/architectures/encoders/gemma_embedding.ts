import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { ModelPooling } from "../../gguf/hparams/pooling.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { linear } from "../../plan/ops/matmul.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { attendBothWays, poolNormed, separateHeads } from "./encoder.ts";
import { buildGemma3, GEMMA3_WINDOWS, type Seen } from "../decoders/gemma3.ts";
import { textRow } from "../text_row.ts";

const MAX_FEATURES = 131_072;

/**
 * EmbeddingGemma: Gemma 3's layers with attention in both directions. The mean of the rows passes two
 * matrices where the file has them. Source: "EmbeddingGemma" (arXiv 2509.20354).
 */
export const GEMMA_EMBEDDING: Architecture = {
  allows: { bothDirections: true },
  ending: () => ({ encoder: true }),
  build: (b, h, rope) => buildGemma3(b, h, rope, { ...GEMMA3_WINDOWS, attention: attentionHalf }),
  pooling: "mean",
  pool: poolEmbedding,
};

function attentionHalf(b: PlanBuilder, x: Value, h: Hparams, seen: Seen, name: TensorName): Value {
  const attn = attendBothWays(b, separateHeads(b, x, h, name), h, { ...seen, headNorms: true }, name);
  return linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength }])[0];
}

function poolEmbedding(b: PlanBuilder, x: Value, h: Hparams, pooling: ModelPooling): Value {
  const pooled = poolNormed(b, x, h, pooling);
  if (!b.file.tensors.has("dense_2.weight") && !b.file.tensors.has("dense_3.weight")) return pooled;
  const keys = ArchitectureKeys.of(b.file.metadata);
  const features = textRow(b, pooled, "dense_2", keys.count("dense_2_feat_out", MAX_FEATURES));
  return textRow(b, features, "dense_3", h.embeddingLength);
}
