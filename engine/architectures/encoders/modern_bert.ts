import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { quote } from "../../gguf/errors.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Activation } from "../../plan/plan.ts";
import type { Architecture } from "../architecture.ts";
import { attendBothWays, fusedHeads, hasFineValues, poolEncoder } from "./encoder.ts";
import type { Rope } from "../parts/rope.ts";

/** ModernBERT's layers per period. The first layer of a period has no window. */
const PERIOD = 3;

/** Gate activations of ModernBERT's relatives by the names in files; the default is GELU. */
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  gelu: "gelu",
  geglu: "gelu",
  silu: "silu",
  swish: "silu",
  swiglu: "silu",
};

export const MODERN_BERT: Architecture = {
  allows: { bothDirections: true, layerNorm: true },
  ending: () => ({ encoder: true }),
  pooling: "mean",
  build: buildModernBert,
  pool: (b, x, h, pooling) => poolEncoder(b, x, h, pooling, { of: "mean", activation: "gelu" }),
};

/**
 * ModernBERT's encoder: norms before attention and feed-forward, with GeGLU or SwiGLU. The first layer's attention
 * reads the embedding's norm. Most layers have a two-sided window and another rotary base. Source: "ModernBERT" (arXiv
 * 2412.13663).
 */
function buildModernBert(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const window = keys.window();
  const slides = window > 0 ? keys.windowLayers(h.blockCount, { period: PERIOD, fullFirst: true }) : [];
  const base = keys.ropeBase(h.ropeFreqBase, "_swa");
  const activation = activationOf(keys);
  const eps = h.epsilon;
  const tokens = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const x = layerNorm(b, tokens, "token_embd_norm", eps);
  const full = ropeTable(b, rope.angles());
  const sliding = slides.includes(true) ? ropeTable(b, rope.angles({ base })) : full;
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const attnIn = layer === 0 ? x : layerNorm(b, x, name("attn_norm"), eps);
    const heads = fusedHeads(b, attnIn, h, name, hasFineValues(layer));
    const options = slides[layer] ? { table: sliding, window } : { table: full };
    const attn = attendBothWays(b, heads, h, options, name);
    linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo: x }]);

    const ffnIn = layerNorm(b, x, name("ffn_norm"), eps);
    const ffn = glu(b, ffnIn, name("ffn_up"), name("ffn_up"), h.feedForwardLength, activation);
    linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo: x }]);
  }
  return layerNorm(b, x, "output_norm", eps);
}

function activationOf(keys: ArchitectureKeys): Activation {
  const key = "hidden_activation";
  const name = keys.metadata.getString(keys.name(key), "gelu");
  if (Object.hasOwn(ACTIVATIONS, name)) return ACTIVATIONS[name];
  return keys.refuse(key, quote(name), Object.keys(ACTIVATIONS).map(quote).join(", "));
}
