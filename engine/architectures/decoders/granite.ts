import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { addGraniteMixture, readGraniteExperts } from "../parts/granite_experts.ts";
import { buildLlama, type LlamaTraits } from "./llama.ts";
import type { Rope } from "../parts/rope.ts";
import { readWindows, type Sight, windowed } from "../parts/windows.ts";

/**
 * Dense models of Granite 3 and 4: Llama's decoder with multipliers on the embedding, on residual additions
 * and on attention scores, and a divisor of the logits. Source: Hugging Face transformers, models/granite.
 */
export const GRANITE: Architecture = {
  ending: (keys) => ({ logits: { scale: 1 / keys.scale("logit_scale", 1) } }),
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    // llama.cpp uses this key to mark models without positions.
    const hasPositions = b.file.metadata.getBoolean(keys.name("rope.scaling.finetuned"), true);
    return buildGranite(b, h, rope, { hasPositions: () => hasPositions });
  },
};

/** Granite 3's mixtures of experts: Granite's decoder with experts in every feed-forward block. */
export const GRANITEMOE: Architecture = { ...GRANITE, allows: { experts: true } };

/**
 * Granite models with windows, dense or mixtures: heads have sinks, and the file says which layers have a
 * window and which have positions. Source: Hugging Face transformers, models/granite_swa and granitemoe_swa.
 */
export const GRANITE_SWA: Architecture = {
  ...GRANITEMOE,
  build: (b, h, rope) => buildGranite(b, h, rope, { sinks: true, sights: readSights(b, h, rope) }),
};

function readSights(b: PlanBuilder, h: Hparams, rope: Rope): Sight[] {
  const keys = windowed(b);
  const windows = readWindows(keys, h, h.blockCount, { fullFirst: true });
  const turned = keys.flags("attention.rope_pattern", h.blockCount);
  const table = turned.includes(true) ? ropeTable(b, rope.angles()) : undefined;
  return windows.map((window, layer) => ({ window, table: turned[layer] ? table : undefined }));
}

function buildGranite(
  b: PlanBuilder,
  h: Hparams,
  rope: Rope,
  traits: Pick<LlamaTraits, "hasPositions" | "sights" | "sinks">,
): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const residual = keys.scale("residual_scale", 1);
  const experts = readGraniteExperts(b.file, h, keys);
  return buildLlama(b, h, rope, {
    ...traits,
    interleavedRope: true,
    headNorms: false,
    scales: {
      embedding: keys.scale("embedding_scale", 1),
      residual,
      attention: keys.scale("attention.scale", 1 / Math.sqrt(h.keyLength)),
    },
    feedForward: experts &&
      ((x, addTo, name) => addGraniteMixture(b, x, experts, name, { addTo, times: residual })),
  });
}
