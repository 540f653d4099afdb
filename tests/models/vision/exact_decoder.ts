/** Decoders in float64 that read images' rows. Each is written from its family's definition. */
import { yarn } from "../../convert/yarn.ts";
import { attend, plus, product, rotated, type Rows, sum, tanhGelu, type Tensors } from "./exact.ts";
import { TOWERS } from "./files.ts";

/** A token of text, or an image's rows at a place in its grid. */
export type Part = { readonly token: number } | {
  readonly image: number;
  readonly place: readonly [row: number, column: number];
  /** The embedding's rows, and the rows that deep layers add. */
  readonly rows: readonly Float64Array[];
};

interface Decoder {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly layers: number;
  /** Name of the matrix that gives logits, without ".weight". */
  readonly output: string;
  readonly headNorms?: boolean;
  /** Names of the norms after attention and after the feed-forward block. */
  readonly after?: readonly [string, string];
  readonly before: string;
  readonly interleaved?: boolean;
  readonly embeddingScale?: number;
  readonly activation: (x: number) => number;
  /** Number of positions that a row of the layer attends to, including its own. Rows of an image are exempt. */
  readonly window?: (layer: number) => number;
  /** Whether rows of an image attend to each other in both directions. */
  readonly together?: boolean;
  /** Returns the angles of each pair. `places` are time, height and width. */
  readonly angles: (t: Tensors, layer: number, position: number, places: readonly number[]) => number[];
  /** Returns the factor on queries at a position. */
  readonly temperature?: (position: number) => number;
}

const silu = (x: number) => x / (1 + Math.exp(-x));
const powers = (pairs: number, base: number) => Array.from({ length: pairs }, (_, i) => base ** (-i / pairs));
const isFull = (layer: number) => layer % 6 === 5;

/** Context length before YaRN's scaling. */
const ORIGINAL = 64;
const YARN = yarn(1e6, 32, {
  factor: 16,
  original_max_position_embeddings: ORIGINAL,
  beta_fast: 32,
  beta_slow: 1,
});

export const DECODERS = {
  qwen3vl: {
    heads: 8,
    kvHeads: 4,
    headDim: 64,
    layers: 4,
    output: "token_embd",
    headNorms: true,
    before: "ffn_norm",
    activation: silu,
    angles: (_t, _layer, _position, places) => {
      const [, height, wide] = TOWERS.qwen3vl.sections;
      return powers(32, 1e6).map((frequency, i) => {
        const axis = i % 3 === 1 && i < 3 * height ? 1 : i % 3 === 2 && i < 3 * wide ? 2 : 0;
        return places[axis] * frequency;
      });
    },
  },
  idefics3: {
    heads: 8,
    kvHeads: 4,
    headDim: 32,
    layers: 4,
    output: "output",
    before: "ffn_norm",
    interleaved: true,
    activation: silu,
    angles: (t, _layer, position) =>
      powers(16, 5e5).map((frequency, i) => position * frequency / t.get("rope_freqs.weight")[i]),
  },
  gemma3: {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    layers: 7,
    output: "token_embd",
    headNorms: true,
    after: ["post_attention_norm", "post_ffw_norm"],
    before: "ffn_norm",
    embeddingScale: 16,
    activation: tanhGelu,
    window: (layer) => isFull(layer) ? Infinity : 24,
    together: true,
    angles: (_t, layer, position) =>
      powers(32, isFull(layer) ? 1e6 : 1e4).map((frequency) =>
        position * frequency / (isFull(layer) ? 8 : 1)
      ),
  },
  pixtral: {
    heads: 8,
    kvHeads: 2,
    headDim: 32,
    layers: 4,
    output: "output",
    before: "ffn_norm",
    interleaved: true,
    activation: silu,
    angles: (_t, _layer, position) => YARN.frequencies.map((frequency) => position * frequency),
    temperature: (position) => 1 + 0.1 * Math.log(1 + Math.floor(position / ORIGINAL)),
  },
} satisfies Readonly<Record<string, Decoder>>;

/** Returns the log-probabilities after the last part. */
export function exactDecoder(t: Tensors, name: keyof typeof DECODERS, parts: readonly Part[]): Float64Array {
  const d: Decoder = DECODERS[name];
  const embedding = t.get("token_embd.weight");
  const width = 256;
  const scale = d.embeddingScale ?? 1;
  let x: Rows = parts.map((part) =>
    "token" in part
      ? embedding.slice(part.token * width, (part.token + 1) * width).map((v) => v * scale)
      : part.rows[0]
  );
  const places = positions(parts);
  for (let layer = 0; layer < d.layers; layer++) {
    const of = (tensor: string) => `blk.${layer}.${tensor}`;
    const norm = (rows: Rows, tensor: string) => rows.map((row) => t.rmsNorm(row, of(tensor)));
    const angles = parts.map((_, i) => d.angles(t, layer, i, places[i]));
    const attn = t.affine(attended(t, d, layer, norm(x, "attn_norm"), angles, parts), of("attn_output"));
    x = plus(x, d.after ? norm(attn, d.after[0]) : attn);
    const inputs = norm(x, d.before);
    const [gate, up] = ["ffn_gate", "ffn_up"].map((part) => t.affine(inputs, of(part)));
    const hidden = gate.map((row, i) => row.map((g, j) => d.activation(g) * up[i][j]));
    const ffn = t.affine(hidden, of("ffn_down"));
    x = plus(x, d.after ? norm(ffn, d.after[1]) : ffn);
    x = x.map((row, i) => {
      const part = parts[i];
      const deep = "token" in part ? undefined : part.rows[1 + layer];
      return deep ? row.map((v, j) => v + deep[j]) : row;
    });
  }
  const [logits] = product([t.rmsNorm(x.at(-1)!, "output_norm")], t.get(`${d.output}.weight`));
  const most = Math.max(...logits);
  const total = most + Math.log(sum(logits.map((logit) => Math.exp(logit - most))));
  return logits.map((logit) => logit - total);
}

function attended(
  t: Tensors,
  { heads, kvHeads, headDim, headNorms, interleaved, window, together, temperature }: Decoder,
  layer: number,
  x: Rows,
  angles: readonly number[][],
  parts: readonly Part[],
): Rows {
  const of = (tensor: string) => `blk.${layer}.${tensor}`;
  const [q, k, v] = ["attn_q", "attn_k", "attn_v"].map((part) => t.affine(x, of(part)));
  const headOf = (rows: Rows, head: number) =>
    rows.map((row) => row.slice(head * headDim, (head + 1) * headDim));
  const turned = (rows: Rows, head: number, norm: string) =>
    headOf(rows, head).map((row, i) =>
      rotated(headNorms ? t.rmsNorm(row, of(norm)) : row, angles[i], interleaved)
    );
  const sees = (row: number, other: number) => {
    const [a, b] = [parts[row], parts[other]];
    if (together && "image" in a && "image" in b && a.image === b.image) return true;
    return other <= row && row - other < (window?.(layer) ?? Infinity);
  };
  const attn = x.map(() => new Float64Array(heads * headDim));
  for (let head = 0; head < heads; head++) {
    const shared = Math.floor(head / (heads / kvHeads));
    const [keys, values] = [turned(k, shared, "attn_k_norm"), headOf(v, shared)];
    turned(q, head, "attn_q_norm").forEach((row, i) => {
      const seen = (rows: Rows) => rows.filter((_, other) => sees(i, other));
      const query = row.map((v) => v * (temperature?.(i) ?? 1));
      attn[i].set(attend(query, seen(keys), seen(values)), head * headDim);
    });
  }
  return attn;
}

/** Returns the M-RoPE positions of each part: time, height and width. */
function positions(parts: readonly Part[]): number[][] {
  const places: number[][] = [];
  let next = 0;
  for (const [i, part] of parts.entries()) {
    if ("token" in part) {
      places.push([next, next, next]);
      next++;
      continue;
    }
    const [row, column] = part.place;
    places.push([next, next + row, next + column]);
    const after = parts[i + 1];
    if (after && "image" in after && after.image === part.image) continue;
    next = Math.max(...places.slice(-999).flat()) + 1;
  }
  return places;
}
