/** Code shared by the attention kernels: splitting of contexts, grouping of rows, and common WGSL. */
import type { HeadCounts } from "../../program.ts";
import { kvReader, type KvShape } from "../kv_cache.ts";
import { ROW } from "../shape.ts";

/** Number of positions whose scores one softmax step processes: half a block of the cache. */
export const CHUNK = 16;
/** Maximum words of a head (eight dimensions each) per lane, so at most 32 dimensions. */
const LANE_WORDS = 4;
/**
 * Initial estimate of an attention multiply-add's cost, in multiply-adds of a product; measured on a software adapter.
 * Submits that hold both in a fixed proportion cannot show the cost of each.
 */
export const ATTENTION_COST = 8;
/** Minimum length of a context part, and the unit of its length. A context has at most MOST_PARTS parts. */
const PART = 256;
const MOST_PARTS = 64;
/** Number of workgroups that fill a GPU. Below it, long contexts are split. */
const ENOUGH = 256;
/** Maximum pairs of row and head with split contexts, because one buffer holds the results of their parts. */
const MOST_SHARED = 1024;
/** Number of rows of one sequence from which attention uses tiles. */
const TILED = 8;

/** Parameters of attention kernels. */
export interface AttentionShape extends HeadCounts, KvShape {
  /** Number of positions that a row attends to, including its own; 0 for all. */
  readonly window: number;
  /** Whether each head has a sink: one more score, without a value. */
  readonly sinks: boolean;
  /** Group of layers with the same window. Groups after the first have separate block tables. */
  readonly group: number;
}

/**
 * How contexts are split, equally for all rows. A row's sums keep one order, whether or not workgroups share its
 * context.
 */
export interface ContextParts {
  /** Number of positions in a context part. */
  readonly length: number;
  /** Maximum parts of a context. */
  readonly count: number;
}

/** Returns how contexts of at most `tokens` tokens are split. */
export function contextParts(tokens: number): ContextParts {
  const length = Math.max(PART, Math.ceil(tokens / MOST_PARTS / PART) * PART);
  return { length, count: Math.ceil(tokens / length) };
}

/** Rows that attention computes singly, and tiles of rows of one sequence: (first row, number of rows). */
export interface Spans {
  readonly singles: readonly number[];
  readonly tiles: readonly (readonly [number, number])[];
}

/** Groups the rows of a step. A row's bits do not depend on the grouping. */
export function spansOf(
  sequences: readonly { readonly start: number; readonly length: number }[],
  tileRows: number,
): Spans {
  const singles: number[] = [];
  const tiles: [number, number][] = [];
  for (const { start, length } of sequences) {
    if (length < TILED) {
      for (let i = 0; i < length; i++) singles.push(start + i);
      continue;
    }
    for (let i = 0; i < length; i += tileRows) tiles.push([start + i, Math.min(tileRows, length - i)]);
  }
  return { singles, tiles };
}

/** The figures of a step that decide whether contexts are split. */
export interface SharedSize {
  readonly step: number;
  readonly singles: number;
  readonly tiles: number;
  /** Tokens of the longest context. */
  readonly context: number;
}

/** Returns whether several workgroups share each context of a step. */
export function sharesContext(
  { heads, kvHeads }: HeadCounts,
  parts: ContextParts,
  size: SharedSize,
): boolean {
  return size.context > 2 * parts.length && (size.singles + size.tiles) * kvHeads < ENOUGH &&
    size.step * heads <= MOST_SHARED;
}

/** Returns the maximum positions that a workgroup visits: those of a whole context or, with `shared`, of one part. */
export function positionsSeen({ window }: AttentionShape, { length }: ContextParts, shared: boolean) {
  return ({ step, context }: { readonly step: number; readonly context: number }): number => {
    const seen = window === 0 ? context : Math.min(context, window + step);
    return shared ? Math.min(seen, length) : seen;
  };
}

/** Returns the number of floats in the buffer for the parts of split contexts. */
export function partialFloats(headDim: number, { count }: ContextParts): number {
  return MOST_SHARED * count * partialSize(headDim);
}

/**
 * Returns the number of floats in a part's result: weighted values, largest score, sum of weights, and two for
 * alignment.
 */
function partialSize(headDim: number): number {
  return headDim + 4;
}

/**
 * Returns the number of lanes that compute one position's score together. It is a power of two, and at least two so
 * that a tile has at most 128 queries.
 */
export function scoreLanes({ headDim }: HeadCounts): number {
  const most = 2 ** Math.ceil(Math.log2(headDim / 8 / LANE_WORDS));
  return Math.max(2, most);
}

/** Returns the number of words (eight dimensions each) per lane. Word i of lane p is word p + i * lanes of the head. */
export function laneWords(shape: HeadCounts): number {
  return Math.ceil(shape.headDim / 8 / scoreLanes(shape));
}

/**
 * Returns how many of the query heads that share a key head a workgroup computes: all, or an even share if memory is
 * short.
 */
export function headsTogether(
  { heads, kvHeads }: HeadCounts,
  most: number,
): { together: number; splits: number } {
  const group = heads / kvHeads;
  const splits = Math.ceil(group / most);
  return { together: Math.ceil(group / splits), splits };
}

export function shapeKey(shape: AttentionShape, parts: ContextParts): string {
  const { heads, kvHeads, headDim, kv, gated, window, sinks, group } = shape;
  return [heads, kvHeads, headDim, kv, gated, window, sinks, Math.min(group, 1), parts.length].join(" ");
}

/** Returns the declarations of all attention kernels. `y` holds outputs, or the results of context parts. */
export function head({ heads, headDim, gated, window, group }: AttentionShape): string {
  return `
struct Op { q_stride: u32, q_offset: u32, y_stride: u32, y_offset: u32, scale: f32, parts: u32, list: u32, bases: u32 }
@group(0) @binding(0) var<uniform> op: Op;
${ROW}
const WORDS = ${headDim / 8}u;
const NONE = -3.0e38;
/* in quads of floats */
fn query_at(row: u32, head: u32) -> u32 {
  return (row * op.q_stride + op.q_offset) / 4u + head * ${(gated ? 2 : 1) * headDim / 4}u;
}
fn output_at(row: u32, head: u32) -> u32 { return (row * op.y_stride + op.y_offset) / 4u + head * ${
    headDim / 4
  }u; }
fn partial_at(row: u32, head: u32, part: u32) -> u32 {
  return ((row * ${heads}u + head) * op.parts + part) * ${partialSize(headDim) / 4}u;
}
/* the first position that a row with so many positions sees */
fn first_seen(count: u32) -> u32 { return ${window === 0 ? "0u" : `max(count, ${window}u) - ${window}u`}; }
fn low(word: vec4<u32>) -> vec4<f32> { return vec4(unpack2x16float(word.x), unpack2x16float(word.y)); }
fn high(word: vec4<u32>) -> vec4<f32> { return vec4(unpack2x16float(word.z), unpack2x16float(word.w)); }
fn added(x: vec4<f32>) -> f32 { return (x.x + x.y) + (x.z + x.w); }
${group === 0 ? "" : "/* block tables of windowed layers begin elsewhere */"}
`;
}

/** Returns further declarations for kernels that read the KV cache. */
export function cache(shape: AttentionShape): string {
  return `
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> rows: array<Row>;
@group(0) @binding(6) var<storage, read> tables: array<u32>;
${kvReader(shape)}`;
}

/** WGSL declaration for kernels that store final sums of heads with sinks. */
export const SINKS = "@group(0) @binding(7) var<storage, read> sinks: array<f32>;";

/** Returns a WGSL expression for the start of a row's block table in `tables`. */
export function tableOf({ group }: AttentionShape, row: string, index: string): string {
  return group === 0 ? `${row}.z` : `tables[op.bases + ${index}]`;
}

/** Returns WGSL that merges a context part's result into the whole (`all_top`, `all_total` and sums). */
export function addPart(sums: readonly string[], suffix = ""): string {
  const [allTop, allTotal, top, total] = ["all_top", "all_total", "top", "total"].map((name) =>
    name + suffix
  );
  return `{
    let largest = max(${allTop}, ${top});
    let of_all = exp(${allTop} - largest);
    let of_part = exp(${top} - largest);
    ${allTop} = largest;
    ${allTotal} = fma(${total}, of_part, ${allTotal} * of_all);
    ${sums.map((sum) => `all_${sum} = fma(${sum}, vec4<f32>(of_part), all_${sum} * of_all);`).join("\n    ")}
  }`;
}

/** Returns WGSL that adds the weight of a head's sink. */
export function addSink(shape: AttentionShape, sums: readonly string[], head: string, suffix = ""): string {
  if (!shape.sinks) return "";
  const [top, total] = [`all_top${suffix}`, `all_total${suffix}`];
  return `{
    let largest = max(${top}, sinks[${head}]);
    let of_all = exp(${top} - largest);
    ${total} = fma(${total}, of_all, exp(sinks[${head}] - largest));
    ${sums.map((sum) => `all_${sum} *= of_all;`).join("\n    ")}
  }`;
}

/**
 * Returns WGSL that stores four dimensions of an attention output in y, times the sigmoid of the gate that follows the
 * query.
 */
export function storeQuad({ gated, headDim }: HeadCounts, names: {
  readonly row: string;
  readonly head: string;
  readonly quad: string;
  readonly sum: string;
  readonly total: string;
}): string {
  const { row, head, quad, sum, total } = names;
  const gate = gated ? ` / (1.0 + exp(-q[query_at(${row}, ${head}) + ${headDim / 4}u + ${quad}]))` : "";
  return `y[output_at(${row}, ${head}) + ${quad}] = all_${sum} / ${total}${gate};`;
}
