import { KV_BLOCK_TOKENS } from "../../backend.ts";
import type { Kernel } from "../kernels/types.ts";
import type { HeadCounts, LoweredOp, Slice } from "../program.ts";
import type { Dispatch, StepSize } from "../recorder.ts";
import { float, type GpuKind, label, type PlanOpOf } from "./op.ts";
import { ROW } from "./shape.ts";

/** Lanes of a workgroup, and positions that it looks at together. */
const LANES = 128;
/** Positions of a part at least, and parts of a context at most. */
const PART = 4 * LANES;
const MOST_PARTS = 64;
/** Workgroups that are enough for a GPU: with fewer, a long context is shared out. */
const ENOUGH = 256;

interface AttentionOp extends LoweredOp {
  readonly op: "attention";
  readonly rows: "step";
  readonly q: Slice;
  readonly y: Slice;
  /** Among the layers that have a KV cache. */
  readonly cache: number;
  readonly heads: HeadCounts;
  readonly scale: number;
}

export const ATTENTION: GpuKind<PlanOpOf<"attention">, AttentionOp> = {
  op: "attention",
  lower({ q, out, heads, scale, window, sinks }, to) {
    if (window !== 0) {
      throw new Error(
        "Cannot run this model on the GPU: its attention has a sliding window; use --backend cpu",
      );
    }
    if (sinks !== undefined) {
      throw new Error("Cannot run this model on the GPU: its attention has sinks; use --backend cpu");
    }
    const [query, y] = [to.slice(q), to.make([out])];
    to.push({ op: "attention", rows: "step", q: query, y, cache: heads.layer, heads, scale });
  },
  async dispatches(op, w) {
    const { keys, values, rows, tables, partials, contexts } = w.context.buffers;
    const { q, y, heads } = op;
    const words = [w.stride(q), q.offset, w.stride(y), y.offset, float(op.scale), contexts.count];
    const uniforms = await w.uniforms(words);
    const cache = [keys[op.cache], values[op.cache], rows, tables];
    const shares = ({ step, context }: StepSize) => sharesContext(heads, contexts, step, context);
    const make = (name: string, kernel: Kernel, more: GPUBuffer[], when: Dispatch["when"]): Dispatch => {
      const bindings = [uniforms, ...more];
      return { label: `${label(op)}${name}`, rows: op.rows, kernels: [kernel], n: 1, bindings, when };
    };
    const alone = attentionKernel(heads, contexts);
    const shared = attentionKernel(heads, contexts, true);
    const merge = mergeKernel(heads, contexts);
    const [query, out] = [w.buffer(q), w.buffer(y)];
    return [
      make("", alone, [query, out, ...cache], (size) => !shares(size)),
      make(" of parts", shared, [query, partials, ...cache], shares),
      make(" merged", merge, [out, partials, rows, ...heads.gated ? [query] : []], shares),
    ];
  },
};

/** How contexts are cut, the same for all rows: a row's sums have one order whether workgroups share it or not. */
export interface ContextParts {
  /** Positions of one. */
  readonly length: number;
  /** Most parts of a context. */
  readonly count: number;
}

/** The parts of contexts of up to so many tokens. */
export function contextParts(tokens: number): ContextParts {
  const length = Math.max(PART, Math.ceil(tokens / MOST_PARTS / LANES) * LANES);
  return { length, count: Math.ceil(tokens / length) };
}

/** Whether workgroups share out the contexts of a step, of which the longest has `context` tokens. */
export function sharesContext({ heads }: HeadCounts, parts: ContextParts, rows: number, context: number) {
  return context > 2 * parts.length && rows * heads < ENOUGH;
}

/** Floats that hold what the workgroups of a step find that shares its contexts. */
export function partialFloats(headDim: number, { count }: ContextParts): number {
  return ENOUGH * count * (headDim + 2);
}

const OP = (gated: boolean, headDim: number, heads: number) => `
struct Op { q_stride: u32, q_offset: u32, y_stride: u32, y_offset: u32, scale: f32, parts: u32, b: u32, c: u32 }
@group(0) @binding(0) var<uniform> op: Op;
${ROW}
const D = ${headDim}u;
fn query_at(group: vec3<u32>) -> u32 {
  return group.y * op.q_stride + op.q_offset + group.x * ${gated ? 2 * headDim : headDim}u;
}
fn partial_at(group: vec3<u32>, part: u32) -> u32 {
  return ((group.y * ${heads}u + group.x) * op.parts + part) * (D + 2u);
}

/* the softmax of some positions: its largest score, the sum of weights, and of weighted values (of two dimensions) */
struct Share { largest: f32, total: f32, sum: vec2<f32> }
const NOTHING = Share(-3.0e38, 0.0, vec2<f32>(0.0));
fn merged(a: Share, b: Share) -> Share {
  let largest = max(a.largest, b.largest);
  let of_a = exp(a.largest - largest);
  let of_b = exp(b.largest - largest);
  return Share(largest, a.total * of_a + b.total * of_b, a.sum * of_a + b.sum * of_b);
}`;

/** Statements that put `all` into y, times the sigmoid of the gate behind the query. */
function store(gated: boolean): string {
  const gate = (d: string) => gated ? ` / (1.0 + exp(-q[query_at(group) + D + ${d}]))` : "";
  return `let to = group.y * op.y_stride + op.y_offset + group.x * D + 2u * lane;
    y[to] = all.sum.x / all.total${gate("2u * lane")};
    y[to + 1u] = all.sum.y / all.total${gate("2u * lane + 1u")};`;
}

/**
 * out = softmax(scale q K) V, times the sigmoid of the gate behind the query where there is one; a workgroup a head and
 * row. A context's parts are done one after the other and merged; with `shared` each is another workgroup's, which only
 * notes what it finds. In a part, positions are taken in chunks of 128. Scores: a lane a position; values: a lane two
 * dimensions of every n-th position of the chunk.
 */
export function attentionKernel(shape: HeadCounts, parts: ContextParts, shared = false): Kernel {
  const { heads, kvHeads, headDim, gated } = shape;
  const pairs = headDim / 2;
  const strands = Math.floor(LANES / pairs);
  if (strands < 1) {
    throw new Error(
      `Cannot run this model on the GPU: its head dimension must be at most 256 (got ${headDim}); use --backend cpu`,
    );
  }
  const code = `
${OP(gated, headDim, heads)}
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> values: array<u32>;
@group(0) @binding(5) var<storage, read> rows: array<Row>;
@group(0) @binding(6) var<storage, read> tables: array<u32>;
var<workgroup> query: array<f32, ${headDim}>;
var<workgroup> weights: array<f32, ${LANES}>;
var<workgroup> work: array<f32, ${LANES}>;
var<workgroup> strands: array<vec2<f32>, ${LANES}>;

fn slot_of(row: Row, kv_head: u32, position: u32) -> u32 {
  let block = tables[row.z + position / ${KV_BLOCK_TOKENS}u];
  return (block * ${kvHeads}u + kv_head) * ${KV_BLOCK_TOKENS}u + position % ${KV_BLOCK_TOKENS}u;
}

/* a range of positions; the sum is in the first lanes */
fn attend(row: Row, kv_head: u32, begin: u32, end: u32, lane: u32) -> Share {
  let pair = lane % ${pairs}u;
  let strand = lane / ${pairs}u;
  var share = NOTHING;
  for (var first = begin; first < end; first += ${LANES}u) {
    var score = -3.0e38;
    if (first + lane < end) {
      let key = slot_of(row, kv_head, first + lane) * ${headDim / 8}u;
      score = 0.0;
      for (var i = 0u; i < ${headDim / 8}u; i++) {
        let k = keys[key + i];
        let d = 8u * i;
        score += dot(vec4(unpack2x16float(k.x), unpack2x16float(k.y)),
          vec4(query[d], query[d + 1u], query[d + 2u], query[d + 3u]));
        score += dot(vec4(unpack2x16float(k.z), unpack2x16float(k.w)),
          vec4(query[d + 4u], query[d + 5u], query[d + 6u], query[d + 7u]));
      }
    }
    work[lane] = score;
    workgroupBarrier();
    for (var reach = ${LANES / 2}u; reach > 0u; reach >>= 1u) {
      if (lane < reach) { work[lane] = max(work[lane], work[lane + reach]); }
      workgroupBarrier();
    }
    let top = max(share.largest, work[0]);
    workgroupBarrier();
    let weight = select(0.0, exp(score - top), first + lane < end);
    weights[lane] = weight;
    work[lane] = weight;
    workgroupBarrier();
    for (var reach = ${LANES / 2}u; reach > 0u; reach >>= 1u) {
      if (lane < reach) { work[lane] += work[lane + reach]; }
      workgroupBarrier();
    }
    let shrink = exp(share.largest - top);
    share = Share(top, share.total * shrink + work[0], share.sum * shrink);
    let filled = min(${LANES}u, end - first);
    if (strand < ${strands}u) {
      for (var i = strand; i < filled; i += ${strands}u) {
        let v = values[slot_of(row, kv_head, first + i) * ${pairs}u + pair];
        share.sum += weights[i] * unpack2x16float(v);
      }
    }
    workgroupBarrier();
  }
  strands[lane] = share.sum;
  workgroupBarrier();
  if (lane < ${pairs}u) {
    for (var i = 1u; i < ${strands}u; i++) { share.sum += strands[lane + i * ${pairs}u]; }
  }
  workgroupBarrier();
  return share;
}

@compute @workgroup_size(${LANES})
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = rows[group.y];
  let count = row.y + 1u;
  if (row.w == 1u${shared ? ` || group.z * ${parts.length}u >= count` : ""}) { return; }
  let kv_head = group.x / ${heads / kvHeads}u;
  for (var d = lane; d < D; d += ${LANES}u) { query[d] = q[query_at(group) + d] * op.scale; }
  workgroupBarrier();
  ${shared ? onePart(parts, pairs) : allParts(parts, pairs, store(gated))}
}`;
  return {
    key: `attention ${heads} ${kvHeads} ${headDim} ${gated} ${parts.length} ${shared}`,
    code,
    entryPoint: "attention",
    constants: {},
    maxRows: Infinity,
    workgroups: (_n, m, context = 1) => [heads, m, shared ? Math.ceil(context / parts.length) : 1],
  };
}

function allParts({ length }: ContextParts, pairs: number, stored: string): string {
  return `var all = NOTHING;
  for (var begin = 0u; begin < count; begin += ${length}u) {
    all = merged(all, attend(row, kv_head, begin, min(begin + ${length}u, count), lane));
  }
  if (lane < ${pairs}u) {
    ${stored}
  }`;
}

/** Here y holds the parts' findings. */
function onePart({ length }: ContextParts, pairs: number): string {
  return `let begin = group.z * ${length}u;
  let share = attend(row, kv_head, begin, min(begin + ${length}u, count), lane);
  let at = partial_at(group, group.z);
  if (lane < ${pairs}u) {
    y[at + 2u * lane] = share.sum.x;
    y[at + 2u * lane + 1u] = share.sum.y;
  }
  if (lane == 0u) {
    y[at + D] = share.largest;
    y[at + D + 1u] = share.total;
  }`;
}

/** Merges what workgroups found in the parts of shared contexts. Only where there is a gate does it read q. */
export function mergeKernel({ heads, headDim, gated }: HeadCounts, parts: ContextParts): Kernel {
  const code = `
${OP(gated, headDim, heads)}
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> partials: array<f32>;
@group(0) @binding(3) var<storage, read> rows: array<Row>;
${gated ? "@group(0) @binding(4) var<storage, read> q: array<f32>;" : ""}

@compute @workgroup_size(${headDim / 2})
fn merge_parts(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = rows[group.y];
  if (row.w == 1u) { return; }
  var all = NOTHING;
  for (var part = 0u; part * ${parts.length}u <= row.y; part++) {
    let at = partial_at(group, part);
    let sum = vec2(partials[at + 2u * lane], partials[at + 2u * lane + 1u]);
    all = merged(all, Share(partials[at + D], partials[at + D + 1u], sum));
  }
  ${store(gated)}
}`;
  return {
    key: `merge_parts ${heads} ${headDim} ${gated} ${parts.length}`,
    code,
    entryPoint: "merge_parts",
    constants: {},
    maxRows: Infinity,
    workgroups: (_n, m) => [heads, m, 1],
  };
}
