/** Gemma 4's decoder in float64, written from Hugging Face transformers' definition. */
import { attend, plus, product, rotated, type Rows, sum, tanhGelu, type Tensors } from "../exact.ts";
import type { Part } from "../exact_decoder.ts";
import { unweighted } from "./exact_tower.ts";

const WIDTH = 256;
const HEADS = 4;
const LAYERS = 6;
const WINDOW = 280;
const SOFTCAP = 30;
const isFull = (layer: number) => layer % 2 === 1;

/** Sizes in which the decoders of E2B and 31B differ. */
export interface Gemma4Decoder {
  /** Number of last layers without their own keys and values. They read those of the last earlier layer of their kind. */
  readonly shared: number;
  /** Columns of each layer's own embedding; 0 for none. */
  readonly perLayer: number;
  /** The token whose per-layer embeddings are used for an image's rows. */
  readonly pad: number;
}

/** Returns the log-probabilities after the last part. */
export function exactGemma4Decoder(t: Tensors, of: Gemma4Decoder, parts: readonly Part[]): Float64Array {
  const embedding = t.get("token_embd.weight");
  let x: Rows = parts.map((part) =>
    "token" in part
      ? embedding.slice(part.token * WIDTH, (part.token + 1) * WIDTH).map((v) => 16 * v)
      : part.rows[0]
  );
  const inputs = of.perLayer > 0 ? perLayerInputs(t, of, x, parts) : undefined;
  const kept: { keys?: Rows[]; values?: Rows[] }[] = [{}, {}];
  for (let layer = 0; layer < LAYERS; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const norm = (rows: Rows, tensor: string) => rows.map((row) => t.rmsNorm(row, name(tensor)));
    const cache = kept[Number(isFull(layer))];
    const attn = attended(t, norm(x, "attn_norm"), layer, parts, cache, of);
    x = plus(x, norm(t.affine(attn, name("attn_output")), "post_attention_norm"));
    const normed = norm(x, "ffn_norm");
    const [gate, up] = ["ffn_gate", "ffn_up"].map((part) => t.affine(normed, name(part)));
    const hidden = gate.map((row, i) => row.map((g, j) => tanhGelu(g) * up[i][j]));
    x = plus(x, norm(t.affine(hidden, name("ffn_down")), "post_ffw_norm"));
    if (inputs) {
      const open = t.affine(x, name("inp_gate")).map((row, i) =>
        row.map((g, j) => tanhGelu(g) * inputs[i][layer * of.perLayer + j])
      );
      x = plus(x, norm(t.affine(open, name("proj")), "post_norm"));
    }
    const [scale] = t.get(name("layer_output_scale.weight"));
    x = x.map((row) => row.map((v) => v * scale));
  }
  const [raw] = product([t.rmsNorm(x.at(-1)!, "output_norm")], embedding);
  const logits = raw.map((logit) => SOFTCAP * Math.tanh(logit / SOFTCAP));
  const most = Math.max(...logits);
  const total = most + Math.log(sum(logits.map((logit) => Math.exp(logit - most))));
  return logits.map((logit) => logit - total);
}

/** Returns each row's per-layer inputs for all layers, computed from its token and its embedding. */
function perLayerInputs(t: Tensors, { perLayer, pad }: Gemma4Decoder, x: Rows, parts: readonly Part[]): Rows {
  const table = t.get("per_layer_token_embd.weight");
  const all = perLayer * LAYERS;
  const projected = t.affine(x, "per_layer_model_proj").map((row) => row.map((v) => v / Math.sqrt(WIDTH)));
  return projected.map((row, i) => {
    const part = parts[i];
    const from = ("token" in part ? part.token : pad) * all;
    const layers = Array.from(
      { length: LAYERS },
      (_, layer) => t.rmsNorm(row.slice(layer * perLayer, (layer + 1) * perLayer), "per_layer_proj_norm"),
    );
    return Float64Array.from(
      { length: all },
      (_, j) =>
        (layers[Math.floor(j / perLayer)][j % perLayer] + Math.sqrt(perLayer) * table[from + j]) / Math.SQRT2,
    );
  });
}

function attended(
  t: Tensors,
  x: Rows,
  layer: number,
  parts: readonly Part[],
  cache: { keys?: Rows[]; values?: Rows[] },
  { shared, perLayer }: Gemma4Decoder,
): Rows {
  const full = isFull(layer);
  const name = (tensor: string) => `blk.${layer}.${tensor}`;
  const [kvHeads, headDim] = full ? [1, 128] : [2, 64];
  const headsOf = (rows: Rows, count: number) =>
    Array.from(
      { length: count },
      (_, head) => rows.map((row) => row.slice(head * headDim, (head + 1) * headDim)),
    );
  const angles = (position: number) =>
    Array.from({ length: headDim / 2 }, (_, i) =>
      // Layers without a window rotate a quarter of the pairs.
      full && i >= headDim / 8 ? 0 : position * (full ? 1e6 : 1e4) ** (-i / (headDim / 2)));
  const turned = (rows: Rows, norm: string) =>
    rows.map((row, i) => rotated(t.rmsNorm(row, name(norm)), angles(i)));
  if (layer < LAYERS - shared) {
    const k = t.affine(x, name("attn_k"));
    const v = full ? k : t.affine(x, name("attn_v"));
    cache.keys = headsOf(k, kvHeads).map((rows) => turned(rows, "attn_k_norm"));
    cache.values = headsOf(v, kvHeads).map((rows) => rows.map((row) => unweighted(row)));
  }
  const sees = (row: number, other: number) => {
    if (!full && row - other >= WINDOW) return false;
    const [a, b] = [parts[row], parts[other]];
    const together = !full && perLayer === 0 && "image" in a && "image" in b && a.image === b.image;
    return together || other <= row;
  };
  const attn = x.map(() => new Float64Array(HEADS * headDim));
  headsOf(t.affine(x, name("attn_q")), HEADS).forEach((rows, head) => {
    const from = Math.floor(head / (HEADS / kvHeads));
    turned(rows, "attn_q_norm").forEach((row, i) => {
      const seen = (rows: Rows) => rows.filter((_, other) => sees(i, other));
      attn[i].set(attend(row, seen(cache.keys![from]), seen(cache.values![from]), 1), head * headDim);
    });
  });
  return attn;
}
