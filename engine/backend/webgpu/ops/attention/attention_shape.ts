/** What the kernels of attention share: how contexts are cut, who computes which rows, and their text. */
import type { HeadCounts } from "../../program.ts";
import { kvReader, type KvShape } from "../kv_cache.ts";
import { ROW } from "../shape.ts";

/** Positions of which a softmax takes all scores before it goes on: half a block of the cache. */
export const CHUNK = 16;
/** Dimensions of a head that one lane multiplies: 32 at most, in words of eight. */
const LANE_WORDS = 4;
/**
 * How many of a product's multiply-adds one of attention counts as, with all that it does besides, where nothing was measured: on a software
 * adapter. Submits that hold both in the same proportion do not tell which of them takes long.
 */
export const ATTENTION_COST = 8;
/** Positions of a part at least and its multiples, and parts of a context at most. */
const PART = 256;
const MOST_PARTS = 64;
/** Workgroups that are enough for a GPU: with fewer, long contexts are shared out. */
const ENOUGH = 256;
/** Most pairs of a row and a head whose contexts are shared out: what is found in each part has to lie somewhere. */
const MOST_SHARED = 1024;
/** Rows of one sequence from which they go by tiles. */
const TILED = 8;

/** An attention as its kernels differ by it. */
export interface AttentionShape extends HeadCounts, KvShape {
  /** Positions that a row sees, its own the last; 0 is all. */
  readonly window: number;
  /** Each head has one more score, which has no value. */
  readonly sinks: boolean;
  /** Group of layers by what they see; those after the first have tables of their own. */
  readonly group: number;
}

/** How contexts are cut, the same for all rows: a row's sums have one order whether workgroups share it or not. */
export interface ContextParts {
  /** Positions of one. */
  readonly length: number;
  /** Most parts of a context. */
  readonly count: number;
}

/** The parts of contexts of up to so many tokens. */
export function contextParts(tokens: number): ContextParts {
  const length = Math.max(PART, Math.ceil(tokens / MOST_PARTS / PART) * PART);
  return { length, count: Math.ceil(tokens / length) };
}

/** Rows of a step that are computed one by one, and tiles of rows of one sequence: (first row, rows). */
export interface Spans {
  readonly singles: readonly number[];
  readonly tiles: readonly (readonly [number, number])[];
}

/** Which rows go together. Their bits do not depend on it. */
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

/** What of a step's size decides whether contexts are shared out. */
export interface SharedSize {
  readonly step: number;
  readonly singles: number;
  readonly tiles: number;
  /** Tokens of the longest context. */
  readonly context: number;
}

/** Whether workgroups share out the contexts of a step. */
export function sharesContext(
  { heads, kvHeads }: HeadCounts,
  parts: ContextParts,
  size: SharedSize,
): boolean {
  return size.context > 2 * parts.length && (size.singles + size.tiles) * kvHeads < ENOUGH &&
    size.step * heads <= MOST_SHARED;
}

/** Positions that a workgroup goes through of a context, at most: of all its parts, or of one that it was given. */
export function positionsSeen({ window }: AttentionShape, { length }: ContextParts, shared: boolean) {
  return ({ step, context }: { readonly step: number; readonly context: number }): number => {
    const seen = window === 0 ? context : Math.min(context, window + step);
    return shared ? Math.min(seen, length) : seen;
  };
}

/** Floats that hold what the workgroups of a step find that shares its contexts. */
export function partialFloats(headDim: number, { count }: ContextParts): number {
  return MOST_SHARED * count * partialSize(headDim);
}

/** Floats of a part: weighted values, the largest score, the sum of weights, and two that keep quads aligned. */
function partialSize(headDim: number): number {
  return headDim + 4;
}

/** Lanes that share a position's score, each some words of the head; a power of two, and not one: a tile has 128 queries at most. */
export function scoreLanes({ headDim }: HeadCounts): number {
  const most = 2 ** Math.ceil(Math.log2(headDim / 8 / LANE_WORDS));
  return Math.max(2, most);
}

/** Words of eight dimensions that a lane has of a head: word i of lane p is p + i times the lanes. */
export function laneWords(shape: HeadCounts): number {
  return Math.ceil(shape.headDim / 8 / scoreLanes(shape));
}

/** Heads that a workgroup takes of those that read one head of keys: all, or an even share where there is no room. */
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

/** Declarations that all kernels have: `y` is the outputs, or the parts' findings. */
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
/* the first position that a row of so many positions sees */
fn first_seen(count: u32) -> u32 { return ${window === 0 ? "0u" : `max(count, ${window}u) - ${window}u`}; }
fn low(word: vec4<u32>) -> vec4<f32> { return vec4(unpack2x16float(word.x), unpack2x16float(word.y)); }
fn high(word: vec4<u32>) -> vec4<f32> { return vec4(unpack2x16float(word.z), unpack2x16float(word.w)); }
fn added(x: vec4<f32>) -> f32 { return (x.x + x.y) + (x.z + x.w); }
${group === 0 ? "" : "/* of layers that see a window, tables begin elsewhere */"}
`;
}

/** What the kernels that read the cache declare, beside `head`. */
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

/** What those of them declare that put out whole sums of heads with sinks. */
export const SINKS = "@group(0) @binding(7) var<storage, read> sinks: array<f32>;";

/** Expression: where the block table of a row begins in `tables`. */
export function tableOf({ group }: AttentionShape, row: string, index: string): string {
  return group === 0 ? `${row}.z` : `tables[op.bases + ${index}]`;
}

/** Statements that add to a whole (`all_top`, `all_total`, and sums) what one of its parts found. */
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

/** Statements that let a head's sink take its weight. */
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

/** Statement that puts a quad of the whole into y, times the sigmoid of the gate behind the query. */
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
