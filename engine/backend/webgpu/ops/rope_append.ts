import { cannotRun } from "../errors.ts";
import { KV_BLOCK_TOKENS, type KvType } from "../../backend.ts";
import { kernelOf } from "../kernels/kernel.ts";
import type { Kernel } from "../kernels/types.ts";
import type { DispatchWriter } from "../step/dispatch_writer.ts";
import type { HeadCounts, LoweredOp, VectorId } from "../program.ts";
import type { Dispatch } from "../step/dispatch.ts";
import { kvWriter } from "./kv_cache.ts";
import { float, type GpuKind, label, type PlanOpOf } from "./op.ts";
import { ROW, treeSum } from "./shape.ts";

const LANES = 64;

export interface RopeAppendOp extends LoweredOp {
  readonly op: "rope_append";
  readonly rows: "step";
  /** The buffer of queries, keys and values, and the offset of each in its rows. */
  readonly buffer: number;
  readonly at: { readonly q: number; readonly k: number; readonly v: number };
  /** Norm weights of the query heads, then of the key heads. */
  readonly norms?: VectorId;
  /** The layer's index among the layers that have a KV cache. */
  readonly cache: number;
  /** Index of the rotary angle table; undefined: no head is rotated. */
  readonly table?: number;
  readonly heads: HeadCounts;
  readonly rotated: number;
  readonly interleaved: boolean;
  readonly eps: number;
}

export const ROPE_APPEND: GpuKind<PlanOpOf<"rope_append">, RopeAppendOp> = {
  op: "rope_append",
  lower(op, to) {
    if (op.q === undefined) throw cannotRun("one of its layers drafts tokens");
    if (op.k === undefined || op.v === undefined) {
      throw cannotRun("some of its layers read another layer's KV cache");
    }
    if (op.vNorm) throw cannotRun("its values are normed");
    if (op.vFrom !== 0) throw cannotRun("a part of its keys are its values");
    if (op.unweighted) throw cannotRun("its heads are normed without weights");
    if (op.normLast) throw cannotRun("its heads are normed after rotation");
    if (op.beta !== 0) throw cannotRun("its queries have a temperature by position");
    if ((op.qNorm === undefined) !== (op.kNorm === undefined)) {
      throw cannotRun("only its queries, or only its keys, are normed");
    }
    const [q, k, v] = [op.q, op.k, op.v].map((id) => to.slice(id));
    if (q.buffer !== k.buffer || q.buffer !== v.buffer) {
      throw cannotRun("its queries, keys and values come from different ops");
    }
    const length = op.heads.headDim;
    to.push<RopeAppendOp>({
      op: "rope_append",
      rows: "step",
      buffer: q.buffer,
      at: { q: q.offset, k: k.offset, v: v.offset },
      norms: op.qNorm === undefined || op.kNorm === undefined
        ? undefined
        : to.vector([{ tensor: op.qNorm, length }, { tensor: op.kNorm, length }]),
      cache: op.heads.layer,
      table: op.table === undefined ? undefined : to.deferred(op.table, "rope_table")!.table,
      heads: op.heads,
      rotated: op.rotated,
      interleaved: op.interleaved,
      eps: op.eps,
    });
  },
  async dispatches(op, w) {
    const { length } = w.context.buffers.keys[op.cache];
    return await Promise.all(Array.from({ length }, (_, part) => partOf(op, w, part, length)));
  },
};

/**
 * Returns the dispatch for the key and value heads in one of a layer's buffers. The first dispatch also takes
 * all queries.
 */
async function partOf(op: RopeAppendOp, w: DispatchWriter, part: number, parts: number): Promise<Dispatch> {
  const { weights, buffers, program, plan } = w.context;
  const { stride } = program.buffers[op.buffer];
  const { group } = plan.kv.layers[op.cache];
  const { heads, kvHeads, headDim } = op.heads;
  const kernel = ropeKernel({
    ...op,
    heads: { ...op.heads, heads: part === 0 ? heads : 0, kvHeads: kvHeads / parts },
    kv: plan.kv.type,
    norms: op.norms !== undefined,
    windowed: group > 0,
  });
  const before = part * kvHeads / parts * headDim;
  const at = [op.at.q, op.at.k + before, op.at.v + before];
  const bindings: Dispatch["bindings"][number][] = [
    await w.uniforms([stride, ...at, float(op.eps), buffers.layout.basesOf(group)]),
    buffers.activations[op.buffer],
    buffers.keys[op.cache][part],
    buffers.values[op.cache][part],
    buffers.rows,
    buffers.tables,
  ];
  if (op.table !== undefined) bindings.push(buffers.angles[op.table]);
  if (op.norms !== undefined) bindings.push(weights.vectors[op.norms]);
  return { label: label(op), rows: op.rows, kernels: [kernel], n: 1, bindings };
}

export interface RopeShape {
  readonly heads: HeadCounts;
  readonly kv: KvType;
  readonly rotated: number;
  readonly interleaved: boolean;
  readonly norms: boolean;
  /** Whether the layer has a sliding window, and therefore its own block tables. */
  readonly windowed?: boolean;
}

/** WGSL that norms a head, unless it is a value head. */
const NORM = `if (!is_v) {
    var sum = 0.0;
    for (var d = lane; d < D; d += ${LANES}u) { sum += head[d] * head[d]; }
    let factor = 1.0 / sqrt(tree_sum(lane, sum) / f32(D) + op.eps);
    let weights = select(D, 0u, is_q);
    for (var d = lane; d < D; d += ${LANES}u) { head[d] = head[d] * factor * norms[weights + d]; }
    workgroupBarrier();
  }`;

/** Returns WGSL that rotates a head, unless it is a value head. */
function rotate(rotated: number, interleaved: boolean): string {
  const half = rotated / 2;
  const [first, second] = interleaved ? ["2u * i", "2u * i + 1u"] : ["i", `i + ${half}u`];
  return `if (!is_v) {
    let angle = row.y * ${rotated}u;
    for (var i = lane; i < ${half}u; i += ${LANES}u) {
      let c = angles[angle + i];
      let s = angles[angle + ${half}u + i];
      let x = head[${first}];
      let y = head[${second}];
      head[${first}] = x * c - y * s;
      head[${second}] = x * s + y * c;
    }
    workgroupBarrier();
  }`;
}

/**
 * Returns the kernel that norms and rotates q and k heads and appends k and v to the cache (`kv_cache.ts`). One
 * workgroup per head.
 */
export function ropeKernel(
  { heads, kv: type, rotated, interleaved, norms, windowed = false }: RopeShape,
): Kernel {
  const { heads: q, kvHeads: kv, headDim, gated } = heads;
  const append = kvWriter({ kv: type, kvHeads: kv, headDim }, LANES);
  const code = `
struct Op { stride: u32, q: u32, k: u32, v: u32, eps: f32, bases: u32, b: u32, c: u32 }
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<u32>;
@group(0) @binding(4) var<storage, read> rows: array<Row>;
@group(0) @binding(5) var<storage, read> tables: array<u32>;
${rotated > 0 ? "@group(0) @binding(6) var<storage, read> angles: array<f32>;" : ""}
${norms ? `@group(0) @binding(${rotated > 0 ? 7 : 6}) var<storage, read> norms: array<f32>;` : ""}
${ROW}
const D = ${headDim}u;
var<workgroup> head: array<f32, ${headDim}>;
${norms ? treeSum(LANES) : ""}
${append.globals}

@compute @workgroup_size(${LANES})
fn rope_append(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = rows[group.y];
  let is_q = group.x < ${q}u;
  let is_v = group.x >= ${q + kv}u;
  var at = op.q + group.x * ${gated ? 2 * headDim : headDim}u;
  if (is_v) { at = op.v + (group.x - ${q + kv}u) * D; }
  else if (!is_q) { at = op.k + (group.x - ${q}u) * D; }
  at += group.y * op.stride;
  for (var d = lane; d < D; d += ${LANES}u) { head[d] = qkv[at + d]; }
  workgroupBarrier();
  ${norms ? NORM : ""}
  ${rotated > 0 ? rotate(rotated, interleaved) : ""}
  if (is_q) {
    for (var d = lane; d < D; d += ${LANES}u) { qkv[at + d] = head[d]; }
    return;
  }
  let kv_head = (group.x - ${q}u) % ${kv}u;
  let block = tables[${windowed ? "tables[op.bases + group.y]" : "row.z"} + row.y / ${KV_BLOCK_TOKENS}u];
  let slot = row.y % ${KV_BLOCK_TOKENS}u;
  ${append.statements}
}`;
  return kernelOf(
    `rope_append ${q} ${kv} ${headDim} ${type} ${gated} ${rotated} ${interleaved} ${norms} ${windowed}`,
    code,
    (_n, m) => [q + 2 * kv, m, 1],
  );
}
