import type { Plan, RopeAngles } from "../../plan/plan.ts";
import { type CompileOptions, KV_BLOCK_TOKENS } from "../backend.ts";
import type { GpuMemory } from "./memory.ts";
import { type ContextParts, contextParts, partialFloats } from "./ops/attention_shape.ts";
import { tileRows } from "./ops/attention_tile.ts";
import { PART_BYTES, partsOf } from "./ops/candidates.ts";
import { headStateFloats } from "./ops/delta_rule.ts";
import { kvHeadBytes } from "./ops/kv_cache.ts";
import type { Program, RowKind } from "./program.ts";
import { CARRY_WORDS, ROW_WORDS, type TableLayout, tableLayout } from "./step_data.ts";

/** The buffers that ops read besides weights. */
export interface StepBuffers {
  readonly activations: readonly GPUBuffer[]; // [program.buffers]
  /** Those of a layer that one binding cannot hold are in several, each with as many of its heads. */
  readonly keys: readonly (readonly GPUBuffer[])[]; // [layers][parts]
  readonly values: readonly (readonly GPUBuffer[])[]; // [layers][parts]
  /** Slots of recurrent state. */
  readonly states: readonly GPUBuffer[]; // [layers]
  /** Where the states of a step's sequences come from and go to. */
  readonly carries: GPUBuffer;
  readonly rows: GPUBuffer;
  readonly tables: GPUBuffer;
  readonly layout: TableLayout;
  readonly angles: readonly GPUBuffer[]; // [tables]
  /** Row of each row that wants logits. */
  readonly chosen: GPUBuffer;
  readonly parts: GPUBuffer;
  /** How attention cuts contexts, and what workgroups that share one find. */
  readonly contexts: ContextParts;
  readonly partials: GPUBuffer;
  /** Number of rows, by kind: uniforms. */
  readonly counts: Readonly<Record<RowKind, GPUBufferBinding>>;
  /** Most rows of a step, by kind. */
  readonly most: Readonly<Record<RowKind, number>>;
}

/** Buffers such that each holds as many of a layer's heads, and takes `bindingBytes` at most; one a head where that is too much too. */
export function kvParts(heads: number, headBytes: number, bindingBytes: number): number {
  for (let parts = 1; parts < heads; parts++) {
    if (heads % parts === 0 && heads / parts * headBytes <= bindingBytes) return parts;
  }
  return heads;
}

async function cacheOf(
  what: string,
  memory: GpuMemory,
  { kv: { layers, type } }: Plan,
  kvBlocks: number,
  bindingBytes: number,
): Promise<GPUBuffer[][]> {
  const all: GPUBuffer[][] = [];
  for (const [i, { heads, headDim }] of layers.entries()) {
    const headBytes = kvBlocks * kvHeadBytes({ kv: type, kvHeads: heads, headDim });
    const parts = kvParts(heads, headBytes, bindingBytes);
    const buffers: GPUBuffer[] = [];
    for (let part = 0; part < parts; part++) {
      const name = `the ${what} of layer ${i}'s KV cache`;
      buffers.push(await memory.storage(name, heads / parts * headBytes));
    }
    all.push(buffers);
  }
  return all;
}

/** Allocates them for steps of the largest size, the cache in bindings of at most so many bytes. Throws GpuError where there is no room. */
export async function makeStepBuffers(
  device: GPUDevice,
  memory: GpuMemory,
  plan: Plan,
  program: Program,
  { kvBlocks, maxRows, maxLogitRows, stateSlots = 0, parallel = maxRows }: CompileOptions,
  bindingBytes: number,
): Promise<StepBuffers> {
  const activations: GPUBuffer[] = [];
  for (const { rows, stride } of program.buffers) {
    const count = rows === "step" ? maxRows : maxLogitRows;
    activations.push(await memory.storage("activations", 4 * stride * count));
  }
  const uniform = async () => {
    const buffer = await memory.buffer("row counts", 16, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    return { buffer };
  };
  const { windows } = plan.kv;
  const layout = tableLayout(maxRows, windows.length, smallestTile(plan));
  const longest = Math.min(plan.contextLength, kvBlocks * KV_BLOCK_TOKENS);
  const tableEntries = layout.tables + windows.length * parallel * Math.ceil(longest / KV_BLOCK_TOKENS);
  const contexts = contextParts(longest);
  return {
    activations,
    keys: await cacheOf("keys", memory, plan, kvBlocks, bindingBytes),
    values: await cacheOf("values", memory, plan, kvBlocks, bindingBytes),
    states: await statesOf(memory, plan, stateSlots),
    carries: await memory.storage("states' slots", 4 * CARRY_WORDS * (2 * maxRows + stateSlots)),
    rows: await memory.storage("rows", 4 * ROW_WORDS * maxRows),
    tables: await memory.storage("block tables", 4 * tableEntries),
    layout,
    angles: await anglesOf(device, memory, plan, longest),
    chosen: await memory.storage("logit rows", 4 * maxLogitRows),
    parts: await memory.storage("parts of logits", PART_BYTES * partsOf(plan.vocabSize) * maxLogitRows),
    contexts,
    partials: await memory.storage("parts of attention", 4 * partialFloats(largestHead(plan), contexts)),
    counts: { step: await uniform(), logits: await uniform() },
    most: { step: maxRows, logits: maxLogitRows },
  };
}

async function statesOf(memory: GpuMemory, { ops }: Plan, slots: number): Promise<GPUBuffer[]> {
  const buffers: GPUBuffer[] = [];
  for (const op of ops) {
    if (op.op !== "delta_rule") continue;
    const { layer, valueHeads } = op.heads;
    const bytes = 4 * slots * valueHeads * headStateFloats(op.heads);
    buffers[layer] = await memory.storage(`the buffer of layer ${layer}'s ${slots} recurrent states`, bytes);
  }
  return buffers;
}

/** Rows of a tile of attention that all layers have room for. */
function smallestTile({ ops }: Plan): number {
  return ops.reduce(
    (rows, op) => op.op === "attention" ? Math.min(rows, tileRows(op.heads)) : rows,
    Infinity,
  );
}

function largestHead({ kv: { layers } }: Plan): number {
  return layers.reduce((largest, { headDim }) => Math.max(largest, headDim), 0);
}

/** cos, then sin, of every position's angles, table by table, from f64: a GPU's own are wrong for large angles. */
async function anglesOf(
  device: GPUDevice,
  memory: GpuMemory,
  plan: Plan,
  positions: number,
): Promise<GPUBuffer[]> {
  const buffers: GPUBuffer[] = [];
  for (const angles of plan.rope) {
    const table = angleTable(angles, positions);
    const buffer = await memory.storage("angles", table.byteLength);
    device.queue.writeBuffer(buffer, 0, table);
    buffers.push(buffer);
  }
  return buffers;
}

function angleTable({ frequencies, magnitude }: RopeAngles, positions: number): Float32Array<ArrayBuffer> {
  const half = frequencies.length;
  const table = new Float32Array(positions * 2 * half);
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * frequencies[i];
      table[(2 * position) * half + i] = magnitude * Math.cos(angle);
      table[(2 * position + 1) * half + i] = magnitude * Math.sin(angle);
    }
  }
  return table;
}
