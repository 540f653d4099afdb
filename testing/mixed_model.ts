/**
 * A test model with different layers: heads, head sizes, windows, rotary tables, and layers that share an earlier
 * layer's cache. It has a plan, a file, and a float64 reference from the formulas.
 */
import { openGguf } from "../engine/gguf/reader.ts";
import { GgufBuilder } from "../engine/gguf/testing.ts";
import type { GgufFile } from "../engine/gguf/types.ts";
import { PlanBuilder, type Value } from "../engine/plan/builder.ts";
import { finishPlan } from "../engine/plan/finish.ts";
import { attention } from "../engine/plan/ops/attention.ts";
import { candidates } from "../engine/plan/ops/candidates.ts";
import { embed } from "../engine/plan/ops/embed.ts";
import { linear } from "../engine/plan/ops/matmul.ts";
import { rmsNorm } from "../engine/plan/ops/rms_norm.ts";
import { ropeAppend } from "../engine/plan/ops/rope_append.ts";
import { ropeTable } from "../engine/plan/ops/rope_table.ts";
import { glu } from "../engine/plan/ops/glu.ts";
import type { Plan } from "../engine/plan/plan.ts";
import { addDelta, type DeltaHeads, exactDelta, mixDelta, multiply } from "./mixed_delta.ts";
import { INT16, type KvRounding } from "./kv_rounding.ts";
import { Random, seedOf } from "./random.ts";

export interface MixedLayer {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Number of rotated leading dimensions, the base of the angles, and the pairing. */
  readonly rotated: number;
  readonly base: number;
  readonly interleaved: boolean;
  /** Magnitude of cosine and sine; by default 1. */
  readonly magnitude?: number;
  /** Number of tokens that a row sees, including its own; 0 means all. */
  readonly window: number;
  /** Number of the layer whose keys and values this layer uses; it stores none itself. */
  readonly reads?: number;
  /** Heads of a recurrent layer; the fields above are then ignored. */
  readonly delta?: DeltaHeads;
}

export const EMBEDDING = 64;
export const VOCABULARY = 80;
const FEED_FORWARD = 96;
const EPSILON = 2 ** -20;

const SLIDING = { heads: 4, kvHeads: 2, headDim: 32, rotated: 32, base: 1e4, interleaved: false, window: 5 };
const FULL = { heads: 4, kvHeads: 1, headDim: 64, rotated: 48, base: 1e6, interleaved: true, window: 0 };
/**
 * Layers of the test model, with windows of 5 and 140 tokens: less than a KV block, and more than a chunk of attention.
 */
export const LAYERS: readonly MixedLayer[] = [
  SLIDING,
  FULL,
  { ...SLIDING, window: 140, heads: 6, kvHeads: 3, headDim: 16, rotated: 16 },
  { ...SLIDING, reads: 0, heads: 8 },
  { ...FULL, reads: 1 },
];

/** The test model with recurrent layers of two shapes. */
export const HYBRID_LAYERS: readonly MixedLayer[] = [
  { ...SLIDING, delta: { keyHeads: 2, valueHeads: 4, headDim: 32 } },
  SLIDING,
  { ...SLIDING, delta: { keyHeads: 1, valueHeads: 2, headDim: 64 } },
  FULL,
  { ...SLIDING, window: 140, heads: 6, kvHeads: 3, headDim: 16, rotated: 16 },
  { ...SLIDING, reads: 1, heads: 8 },
];

/** Returns random tokens; the same for the same seed. */
export function prompt(length: number, seed: string): number[] {
  const random = new Random(seedOf(seed));
  return Array.from({ length }, () => random.below(VOCABULARY));
}

/** Returns a model file with F32 weights, and its values by tensor name. */
export function mixedFile(layers: readonly MixedLayer[] = LAYERS) {
  const builder = new GgufBuilder();
  const values = new Map<string, Float32Array>();
  const add = (name: string, shape: number[], mean = 0) => {
    const random = new Random(seedOf(`mixed ${name}`));
    const spread = mean === 0 ? 1 / Math.sqrt(shape[0]) : 0.1;
    const data = Float32Array.from(
      { length: shape.reduce((a, b) => a * b) },
      () => mean + spread * random.normal(),
    );
    builder.tensor(`${name}.weight`, "F32", shape, data);
    values.set(name, data);
  };
  builder.set("general.architecture", "STRING", "mixed");
  add("token_embd", [EMBEDDING, VOCABULARY]);
  add("output_norm", [EMBEDDING], 2);
  for (const [i, layer] of layers.entries()) {
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    for (const norm of ["attn_norm", "ffn_norm"]) add(name(norm), [EMBEDDING], 1);
    if (layer.delta) addDelta(add, name, layer.delta, EMBEDDING);
    else addAttention(add, name, layer);
    for (const half of ["ffn_gate", "ffn_up"]) add(name(half), [EMBEDDING, FEED_FORWARD]);
    add(name("ffn_down"), [FEED_FORWARD, EMBEDDING]);
  }
  return { bytes: builder.build().bytes, values };
}

function addAttention(
  add: (name: string, shape: number[], mean?: number) => void,
  name: (tensor: string) => string,
  { heads, kvHeads, headDim, reads }: MixedLayer,
): void {
  add(name("attn_q"), [EMBEDDING, heads * headDim]);
  add(name("attn_q_norm"), [headDim], 1);
  if (reads === undefined) {
    for (const kept of ["attn_k", "attn_v"]) add(name(kept), [EMBEDDING, kvHeads * headDim]);
    add(name("attn_k_norm"), [headDim], 1);
  }
  add(name("attn_output"), [heads * headDim, EMBEDDING]);
}

/** Builds the end of a plan, after the last layer's rows. */
export type Ending = (b: PlanBuilder, x: Value) => void;

const LOGITS: Ending = (b, x) => {
  candidates(b, rmsNorm(b, x, "output_norm", EPSILON, "logits"), VOCABULARY);
};

/** Returns the plan of a file from `mixedFile`. */
export function mixedPlan(layers: readonly MixedLayer[] = LAYERS, ending = LOGITS): (file: GgufFile) => Plan {
  return (file) => {
    const b = new PlanBuilder(file);
    const x = embed(b, "token_embd", VOCABULARY, EMBEDDING);
    const tables = new Map<string, Value>();
    const tableOf = ({ rotated, base, magnitude = 1 }: MixedLayer) => {
      if (rotated === 0) return undefined;
      const key = `${rotated} ${base} ${magnitude}`;
      const table = tables.get(key) ?? ropeTable(b, { frequencies: frequencies(rotated, base), magnitude });
      tables.set(key, table);
      return table;
    };
    const caches: number[] = [];
    for (const [i, layer] of layers.entries()) {
      const { heads, kvHeads, headDim, reads, delta } = layer;
      const name = (tensor: string) => `blk.${i}.${tensor}`;
      const attnIn = rmsNorm(b, x, name("attn_norm"), EPSILON);
      if (delta) {
        caches.push(NaN);
        const mixed = mixDelta(b, attnIn, delta, name, EPSILON);
        linear(b, mixed, [{ name: name("ssm_out"), rows: EMBEDDING, addTo: x }]);
        addFeedForward(b, x, name);
        continue;
      }
      const table = tableOf(layer);
      caches.push(reads === undefined ? b.kvLayer({ heads: kvHeads, headDim }) : caches[reads]);
      const shape = { layer: caches[i], heads, kvHeads, headDim, gated: false };
      const rows = { attn_q: heads * headDim, attn_k: kvHeads * headDim, attn_v: kvHeads * headDim };
      const wanted = reads === undefined ? Object.entries(rows) : Object.entries(rows).slice(0, 1);
      const qkv = linear(b, attnIn, wanted.map(([part, rows]) => ({ name: name(part), rows })));
      ropeAppend(b, qkv, shape, {
        table,
        rotated: layer.rotated,
        interleaved: layer.interleaved,
        eps: EPSILON,
        qNorm: name("attn_q_norm"),
        kNorm: reads === undefined ? name("attn_k_norm") : undefined,
      });
      const attn = attention(b, qkv[0], shape, 1 / Math.sqrt(headDim), { window: layer.window });
      linear(b, attn, [{ name: name("attn_output"), rows: EMBEDDING, addTo: x }]);
      addFeedForward(b, x, name);
    }
    ending(b, x);
    return finishPlan(b, { architecture: "mixed", vocabSize: VOCABULARY, contextLength: 512 });
  };
}

function addFeedForward(b: PlanBuilder, x: Value, name: (tensor: string) => string): void {
  const normed = rmsNorm(b, x, name("ffn_norm"), EPSILON);
  const ffn = glu(b, normed, name("ffn_gate"), name("ffn_up"), FEED_FORWARD);
  linear(b, ffn, [{ name: name("ffn_down"), rows: EMBEDDING, addTo: x }]);
}

/** Returns the plan of the test model without a backend. */
export async function mixedPlanOf(layers: readonly MixedLayer[] = LAYERS, ending = LOGITS): Promise<Plan> {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    await Deno.writeFile(path, mixedFile(layers).bytes);
    return mixedPlan(layers, ending)(await openGguf(path));
  } finally {
    await Deno.remove(path);
  }
}

function frequencies(rotated: number, base: number): Float64Array {
  return Float64Array.from({ length: rotated / 2 }, (_, i) => base ** (-2 * i / rotated));
}

type Rows = Float64Array[];
type Weights = ReadonlyMap<string, Float32Array>;
/** A layer's cached values per token and head. */
interface Kept {
  readonly keys: Rows[];
  readonly values: Rows[];
  readonly scales: number[][];
}

/** Returns the final norm's rows of a sequence, in float64 except for attention's rounding. */
export function exactRows(
  values: Weights,
  tokens: readonly number[],
  layers: readonly MixedLayer[] = LAYERS,
  rounding: KvRounding = INT16,
): Rows {
  const embedding = values.get("token_embd")!;
  let x: Rows = tokens.map((t) => Float64Array.from(embedding.subarray(t * EMBEDDING, (t + 1) * EMBEDDING)));
  const caches: Kept[] = [];
  for (const [i, layer] of layers.entries()) {
    const get = (tensor: string) => values.get(`blk.${i}.${tensor}`)!;
    const input = x.map((row) => norm(row, get("attn_norm")));
    if (layer.delta) {
      caches.push({ keys: [], values: [], scales: [] });
      const mixed = exactDelta(input, layer.delta, get, EPSILON);
      x = add(x, mixed.map((row) => multiply(get("ssm_out"), row)));
      x = add(x, x.map((row) => feedForward(norm(row, get("ffn_norm")), get)));
      continue;
    }
    const heads = (tensor: string) => input.map((row) => split(multiply(get(tensor), row), layer.headDim));
    const turned = (of: Rows[], weight: Float32Array) =>
      of.map((row, t) => row.map((head) => rotate(norm(head, weight), t, layer)));
    if (layer.reads === undefined) {
      const [keys, rows] = [turned(heads("attn_k"), get("attn_k_norm")), heads("attn_v")];
      caches.push({
        keys: keys.map((row) => row.map(rounding.key)),
        values: rows.map((row) => row.map(rounding.value)),
        scales: rows.map((row) => row.map(rounding.valueScale)),
      });
    } else caches.push(caches[layer.reads]);
    const queries = turned(heads("attn_q"), get("attn_q_norm"));
    const attn = queries.map((row, t) => attend(row, t, caches[i], layer, rounding));
    x = add(x, attn.map((row) => multiply(get("attn_output"), row)));
    x = add(x, x.map((row) => feedForward(norm(row, get("ffn_norm")), get)));
  }
  return x.map((row) => norm(row, values.get("output_norm")!));
}

/** Returns the exact logits after each token. */
export function exactLogits(
  values: Weights,
  tokens: readonly number[],
  layers: readonly MixedLayer[] = LAYERS,
  rounding: KvRounding = INT16,
): Rows {
  return exactRows(values, tokens, layers, rounding).map((row) => multiply(values.get("token_embd")!, row));
}

/**
 * Returns the root mean square error. Kernels and this file may round ties of keys and values differently, so single
 * values differ more.
 */
export function distance(found: Float32Array, exact: Float64Array): number {
  return Math.sqrt(exact.reduce((sum, value, i) => sum + (value - found[i]) ** 2, 0) / exact.length);
}

function attend(
  queries: Rows,
  t: number,
  kept: Kept,
  { heads, kvHeads, headDim, window }: MixedLayer,
  rounding: KvRounding,
): Float64Array {
  const first = window === 0 ? 0 : Math.max(0, t + 1 - window);
  return Float64Array.from(queries.flatMap((query, h) => {
    const kv = Math.floor(h / (heads / kvHeads));
    const rounded = rounding.query(query);
    const scores = kept.keys.slice(first, t + 1).map((row) => dot(rounded, row[kv]) / Math.sqrt(headDim));
    const top = Math.max(...scores);
    const weights = scores.map((score) => Math.exp(score - top));
    const total = weights.reduce((a, b) => a + b);
    const mixed = new Float64Array(headDim);
    const scales = kept.scales.slice(first, t + 1).map((row) => row[kv]);
    rounding.weights(weights, first, scales).forEach((w, s) =>
      kept.values[first + s][kv].forEach((v, d) => mixed[d] += w / total * v)
    );
    return Array.from(mixed);
  }));
}

function feedForward(row: Float64Array, get: (tensor: string) => Float32Array): Float64Array {
  const [gate, up] = ["ffn_gate", "ffn_up"].map((name) => multiply(get(name), row));
  return multiply(get("ffn_down"), gate.map((g, i) => g / (1 + Math.exp(-g)) * up[i]));
}

function rotate(
  head: Float64Array,
  position: number,
  { rotated, base, interleaved, magnitude = 1 }: MixedLayer,
): Float64Array {
  const out = head.slice();
  const half = rotated / 2;
  for (const [i, frequency] of frequencies(rotated, base).entries()) {
    const [a, b] = interleaved ? [2 * i, 2 * i + 1] : [i, i + half];
    const [cos, sin] = [Math.cos(position * frequency), Math.sin(position * frequency)].map((x) =>
      magnitude * x
    );
    out[a] = head[a] * cos - head[b] * sin;
    out[b] = head[a] * sin + head[b] * cos;
  }
  return out;
}

function norm(row: Float64Array, weight: Float32Array): Float64Array {
  const scale = 1 / Math.sqrt(dot(row, row) / row.length + EPSILON);
  return row.map((value, i) => value * scale * weight[i]);
}

const split = (row: Float64Array, width: number): Rows =>
  Array.from({ length: row.length / width }, (_, h) => row.subarray(h * width, (h + 1) * width));
const add = (x: Rows, y: Rows): Rows => x.map((row, t) => row.map((value, i) => value + y[t][i]));
const dot = (a: Float64Array, b: Float64Array): number => a.reduce((sum, value, i) => sum + value * b[i], 0);
