/** Qwen3-VL in float64, written from the papers' formulas: the tower of one image, and the decoder that reads its rows. */
import { openGguf } from "../../../engine/gguf/reader.ts";
import type { GgufFile } from "../../../engine/gguf/types.ts";
import type { Rgb } from "../../../engine/vision/resize.ts";
import { dequantize } from "../../../testing/synth/weights.ts";
import { DEEP, SECTIONS, TOWER } from "./files.ts";

type Rows = Float64Array[];

/** A model file's tensors in float64. */
export class Tensors {
  readonly #bytes: Uint8Array;
  readonly #values = new Map<string, Float64Array>();

  private constructor(private readonly file: GgufFile) {
    this.#bytes = Deno.readFileSync(file.path);
  }

  static async open(path: string): Promise<Tensors> {
    return new Tensors(await openGguf(path));
  }

  get(name: string): Float64Array {
    const info = this.file.tensors.get(name)!;
    const known = this.#values.get(name);
    if (known) return known;
    const bytes = this.#bytes.slice(info.offset, info.offset + info.byteLength);
    const values = dequantize(info.type, bytes, info.shape.reduce((a, b) => a * b));
    this.#values.set(name, values);
    return values;
  }

  affine(x: Rows, name: string, withBias = true): Rows {
    const weight = this.get(`${name}.weight`);
    return product(x, weight, withBias ? this.get(`${name}.bias`) : undefined);
  }

  layerNorm(x: Rows, name: string): Rows {
    const [weight, bias] = [this.get(`${name}.weight`), this.get(`${name}.bias`)];
    return x.map((row) => {
      const mean = sum(row) / row.length;
      const scale = 1 / Math.sqrt(sum(row.map((v) => (v - mean) ** 2)) / row.length + 1e-6);
      return row.map((v, i) => (v - mean) * scale * weight[i] + bias[i]);
    });
  }

  rmsNorm(row: Float64Array, name: string): Float64Array {
    const weight = this.get(`${name}.weight`);
    const scale = 1 / Math.sqrt(sum(row.map((v) => v * v)) / row.length + 1e-6);
    return row.map((v, i) => v * scale * weight[i]);
  }
}

const sum = (values: Float64Array) => values.reduce((a, b) => a + b, 0);

function product(x: Rows, weight: Float64Array, bias?: Float64Array): Rows {
  const columns = x[0].length;
  const rows = weight.length / columns;
  return x.map((row) =>
    Float64Array.from({ length: rows }, (_, r) => {
      let total = bias?.[r] ?? 0;
      for (let i = 0; i < columns; i++) total += weight[r * columns + i] * row[i];
      return total;
    })
  );
}

const plus = (a: Rows, b: Rows) => a.map((row, i) => row.map((v, j) => v + b[i][j]));
const tanhGelu = (x: number) => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const erfGelu = (x: number) => x / 2 * (1 + erf(x / Math.SQRT2));

/** The error function, by its series. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let [term, total] = [x, x];
  for (let n = 1; n < 120; n++) total += (term *= -x * x / n) / (2 * n + 1);
  return 2 / Math.sqrt(Math.PI) * total;
}

/** Rotates a head by one angle per pair (i, i + half). */
function rotated(head: Float64Array, angles: readonly number[]): Float64Array {
  const half = head.length / 2;
  return head.map((v, i) => {
    const [angle, other] = [angles[i % half], i < half ? -head[i + half] : head[i - half]];
    return v * Math.cos(angle) + other * Math.sin(angle);
  });
}

/** Returns softmax(q K) V of one head over the given keys. */
function attend(q: Float64Array, keys: Rows, values: Rows): Float64Array {
  const scores = keys.map((key) => sum(q.map((v, i) => v * key[i])) / Math.sqrt(q.length));
  const most = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - most));
  const total = weights.reduce((a, b) => a + b);
  return q.map((_, i) => values.reduce((all, value, t) => all + weights[t] * value[i], 0) / total);
}

/** Returns an image's rows for the decoder's embedding and for each deep layer. The image needs no scaling. */
export function exactTower(t: Tensors, image: Rgb, deep: readonly number[]): Rows[] {
  const { width, heads, side, patch, layers } = TOWER;
  const [down, across] = [image.height / patch, image.width / patch];
  const places = Array.from({ length: down * across }, (_, i) => [Math.floor(i / across), i % across]);
  const pixels = places.map(([row, column]) =>
    Float64Array.from({ length: 3 * patch ** 2 }, (_, i) => {
      const [channel, y, x] = [Math.floor(i / patch ** 2), Math.floor(i / patch) % patch, i % patch];
      const value = image.pixels[3 * ((row * patch + y) * image.width + column * patch + x) + channel];
      return (value / 255 - 0.5) / 0.5;
    })
  );
  const frames = [t.get("v.patch_embd.weight"), t.get("v.patch_embd.weight.1")];
  let x = product(pixels, frames[0].map((v, i) => v + frames[1][i]), t.get("v.patch_embd.bias"));
  const grid = t.get("v.position_embd.weight");
  x = plus(
    x,
    places.map(([row, column]) => {
      const [y, z] = [row * (side - 1) / (down - 1), column * (side - 1) / (across - 1)];
      return Float64Array.from({ length: width }, (_, i) => {
        let value = 0;
        for (let a = 0; a < side; a++) {
          for (let b = 0; b < side; b++) {
            const weight = Math.max(0, 1 - Math.abs(a - y)) * Math.max(0, 1 - Math.abs(b - z));
            value += weight * grid[(a * side + b) * width + i];
          }
        }
        return value;
      });
    }),
  );
  const headDim = width / heads;
  const angles = places.map((place) =>
    Array.from({ length: headDim / 2 }, (_, i) => {
      const quarter = headDim / 4;
      return place[i < quarter ? 0 : 1] * 10_000 ** (-(i % quarter) / quarter);
    })
  );
  const results: Rows[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const qkv = t.affine(t.layerNorm(x, name("ln1")), name("attn_qkv"));
    const attn = qkv.map(() => new Float64Array(width));
    for (let head = 0; head < heads; head++) {
      const part = (which: number) =>
        qkv.map((row) => row.slice(which * width + head * headDim, which * width + (head + 1) * headDim));
      const [q, k] = [0, 1].map((which) => part(which).map((row, i) => rotated(row, angles[i])));
      q.forEach((row, i) => attn[i].set(attend(row, k, part(2)), head * headDim));
    }
    x = plus(x, t.affine(attn, name("attn_out")));
    const up = t.affine(t.layerNorm(x, name("ln2")), name("ffn_up")).map((row) => row.map(tanhGelu));
    x = plus(x, t.affine(up, name("ffn_down")));
    if (!deep.includes(layer)) continue;
    const ds = (tensor: string) => `v.deepstack.${layer}.${tensor}`;
    const hidden = t.affine(t.layerNorm(merged(x, across), ds("norm")), ds("fc1"));
    results.push(t.affine(hidden.map((row) => row.map(erfGelu)), ds("fc2")));
  }
  const hidden = t.affine(merged(t.layerNorm(x, "v.post_ln"), across), "mm.0");
  return [t.affine(hidden.map((row) => row.map(erfGelu)), "mm.2"), ...results];
}

/** Joins the rows of each square of four patches. */
function merged(x: Rows, across: number): Rows {
  const tokens: Rows = [];
  for (let row = 0; row < x.length / across; row += 2) {
    for (let column = 0; column < across; column += 2) {
      const four = [[0, 0], [0, 1], [1, 0], [1, 1]].map(([a, b]) => x[(row + a) * across + column + b]);
      tokens.push(Float64Array.from(four.flatMap((row) => [...row])));
    }
  }
  return tokens;
}

/** A token of text, or an image's rows at a place in its grid. */
export type Part = { readonly token: number } | {
  readonly image: number;
  readonly place: readonly [row: number, column: number];
  /** The embedding's rows, and the rows that deep layers add. */
  readonly rows: readonly Float64Array[];
};

/** Returns the log-probabilities after the last part, by the small qwen3vl model. */
export function exactDecoder(t: Tensors, parts: readonly Part[]): Float64Array {
  const [heads, kvHeads, headDim, layers, base] = [8, 4, 64, 4, 1e6];
  const embedding = t.get("token_embd.weight");
  const width = 256;
  let x: Rows = parts.map((part) =>
    "token" in part ? embedding.slice(part.token * width, (part.token + 1) * width) : part.rows[0]
  );
  const angles = positions(parts).map((place) =>
    Array.from({ length: headDim / 2 }, (_, i) => {
      const [, height, wide] = SECTIONS.qwen3vl;
      const axis = i % 3 === 1 && i < 3 * height ? 1 : i % 3 === 2 && i < 3 * wide ? 2 : 0;
      return place[axis] * base ** (-2 * i / headDim);
    })
  );
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const normed = x.map((row) => t.rmsNorm(row, name("attn_norm")));
    const headsOf = (rows: Rows, head: number) =>
      rows.map((row) => row.slice(head * headDim, (head + 1) * headDim));
    const [q, k, v] = ["attn_q", "attn_k", "attn_v"].map((part) => t.affine(normed, name(part), false));
    const turned = (rows: Rows, head: number, norm: string) =>
      headsOf(rows, head).map((row, i) => rotated(t.rmsNorm(row, name(norm)), angles[i]));
    const attn = x.map(() => new Float64Array(heads * headDim));
    for (let head = 0; head < heads; head++) {
      const shared = Math.floor(head / (heads / kvHeads));
      const [keys, values] = [turned(k, shared, "attn_k_norm"), headsOf(v, shared)];
      turned(q, head, "attn_q_norm").forEach((row, i) =>
        attn[i].set(attend(row, keys.slice(0, i + 1), values.slice(0, i + 1)), head * headDim)
      );
    }
    x = plus(x, t.affine(attn, name("attn_output"), false));
    const ffnIn = x.map((row) => t.rmsNorm(row, name("ffn_norm")));
    const [gate, up] = ["ffn_gate", "ffn_up"].map((part) => t.affine(ffnIn, name(part), false));
    const hidden = gate.map((row, i) => row.map((g, j) => g / (1 + Math.exp(-g)) * up[i][j]));
    x = plus(x, t.affine(hidden, name("ffn_down"), false));
    if (layer >= DEEP.qwen3vl.length) continue;
    x = x.map((row, i) => {
      const part = parts[i];
      return "token" in part ? row : row.map((v, j) => v + part.rows[1 + layer][j]);
    });
  }
  const [logits] = product([t.rmsNorm(x.at(-1)!, "output_norm")], embedding);
  const most = Math.max(...logits);
  const total = most + Math.log(sum(logits.map((logit) => Math.exp(logit - most))));
  return logits.map((logit) => logit - total);
}

/** Returns the time, height and width of each part. */
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
