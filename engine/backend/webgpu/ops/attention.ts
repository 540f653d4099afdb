import { KV_BLOCK_TOKENS } from "../../backend.ts";
import type { Kernel } from "../kernels/types.ts";
import type { HeadCounts } from "../program.ts";
import { ROW } from "./shape.ts";

/** Lanes of a workgroup, and positions that it looks at together. */
const LANES = 128;

/**
 * out = softmax(scale q K) V, times the sigmoid of the gate behind the query where there is one; a workgroup a head and row. Positions are taken in chunks of 128 from 0 on, so that a row's
 * sums have one order however the step is made up. Scores: a lane a position; values: a lane two dimensions of every
 * n-th position of the chunk.
 */
export function attentionKernel({ heads, kvHeads, headDim, gated }: HeadCounts): Kernel {
  const pairs = headDim / 2;
  const strands = Math.floor(LANES / pairs);
  if (strands < 1) {
    throw new Error(
      `Cannot run this model on the GPU: its head dimension is ${headDim}, allowed is at most 256; use --backend cpu`,
    );
  }
  const gate = (at: string) => gated ? ` / (1.0 + exp(-q[${at}]))` : "";
  const code = `
struct Op { q_stride: u32, q_offset: u32, y_stride: u32, y_offset: u32, scale: f32, a: u32, b: u32, c: u32 }
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> values: array<u32>;
@group(0) @binding(5) var<storage, read> rows: array<Row>;
@group(0) @binding(6) var<storage, read> tables: array<u32>;
${ROW}
const D = ${headDim}u;
var<workgroup> query: array<f32, ${headDim}>;
var<workgroup> weights: array<f32, ${LANES}>;
var<workgroup> work: array<f32, ${LANES}>;
var<workgroup> parts: array<vec2<f32>, ${LANES}>;

fn slot_of(row: Row, kv_head: u32, position: u32) -> u32 {
  let block = tables[row.z + position / ${KV_BLOCK_TOKENS}u];
  return (block * ${kvHeads}u + kv_head) * ${KV_BLOCK_TOKENS}u + position % ${KV_BLOCK_TOKENS}u;
}

@compute @workgroup_size(${LANES})
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = rows[group.y];
  if (row.w == 1u) { return; }
  let count = row.y + 1u;
  let kv_head = group.x / ${heads / kvHeads}u;
  let at = group.y * op.q_stride + op.q_offset + group.x * ${gated ? 2 * headDim : headDim}u;
  for (var d = lane; d < D; d += ${LANES}u) { query[d] = q[at + d] * op.scale; }
  workgroupBarrier();
  let pair = lane % ${pairs}u;
  let strand = lane / ${pairs}u;
  var largest = -3.0e38;
  var total = 0.0;
  var sum = vec2<f32>(0.0);
  for (var first = 0u; first < count; first += ${LANES}u) {
    var score = -3.0e38;
    if (first + lane < count) {
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
    let top = max(largest, work[0]);
    workgroupBarrier();
    let weight = select(0.0, exp(score - top), first + lane < count);
    weights[lane] = weight;
    work[lane] = weight;
    workgroupBarrier();
    for (var reach = ${LANES / 2}u; reach > 0u; reach >>= 1u) {
      if (lane < reach) { work[lane] += work[lane + reach]; }
      workgroupBarrier();
    }
    let shrink = exp(largest - top);
    total = total * shrink + work[0];
    sum *= shrink;
    largest = top;
    let end = min(${LANES}u, count - first);
    if (strand < ${strands}u) {
      for (var i = strand; i < end; i += ${strands}u) {
        let v = values[slot_of(row, kv_head, first + i) * ${pairs}u + pair];
        sum += weights[i] * unpack2x16float(v);
      }
    }
    workgroupBarrier();
  }
  parts[lane] = sum;
  workgroupBarrier();
  if (lane < ${pairs}u) {
    for (var i = 1u; i < ${strands}u; i++) { sum += parts[lane + i * ${pairs}u]; }
    let to = group.y * op.y_stride + op.y_offset + group.x * D + 2u * lane;
    y[to] = sum.x / total${gate("at + D + 2u * lane")};
    y[to + 1u] = sum.y / total${gate("at + D + 2u * lane + 1u")};
  }
}`;
  return {
    key: `attention ${heads} ${kvHeads} ${headDim} ${gated}`,
    code,
    entryPoint: "attention",
    constants: {},
    maxRows: Infinity,
    workgroups: (_n, m) => [heads, m, 1],
  };
}
