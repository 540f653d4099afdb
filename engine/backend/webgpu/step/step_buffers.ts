import type { Plan, RopeAngles } from "../../../plan/plan.ts";
import { type CompileOptions, KV_BLOCK_TOKENS } from "../../backend.ts";
import type { GpuMemory } from "../device/memory.ts";
import { contextParts, partialFloats } from "../ops/attention/attention_shape.ts";
import { tileRows } from "../ops/attention/attention_tile.ts";
import { PART_BYTES, partsOf } from "../ops/logits/candidate_kernels.ts";
import { headStateFloats } from "../ops/delta_rule.ts";
import { kvHeadBytes } from "../ops/kv_cache.ts";
import type { Program } from "../program.ts";
import { CARRY_WORDS, ROW_WORDS, type StepBuffers, tableLayout } from "./layout.ts";
import type { StepData } from "./step_data.ts";

/**
 * Returns the number of buffers for a layer's cache: the fewest with equal numbers of heads and at most `bindingBytes`
 * each, or one per head.
 */
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

/**
 * Allocates the buffers for the largest step. Bindings of the KV cache have at most `bindingBytes`. Throws GpuError if
 * memory is short.
 */
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
    carries: await memory.storage("state slots of sequences", 4 * CARRY_WORDS * (2 * maxRows + stateSlots)),
    rows: await memory.storage("rows", 4 * ROW_WORDS * maxRows),
    tables: await memory.storage("block tables", 4 * tableEntries),
    layout,
    angles: await anglesOf(device, memory, plan, longest),
    chosen: await memory.storage("logit rows", 4 * maxLogitRows),
    parts: await memory.storage(
      "results by part of the logits",
      PART_BYTES * partsOf(plan.vocabSize) * maxLogitRows,
    ),
    contexts,
    partials: await memory.storage(
      "results by part of attention",
      4 * partialFloats(largestHead(plan), contexts),
    ),
    counts: { step: await uniform(), logits: await uniform() },
    most: { step: maxRows, logits: maxLogitRows },
  };
}

/** Writes a step's rows, tables and counts. Throws RangeError if its block tables exceed the buffer. */
export function writeStep({ queue }: GPUDevice, buffers: StepBuffers, data: StepData): void {
  const { tables, layout, counts } = buffers;
  if (4 * data.tables.length > tables.size) {
    throw new RangeError(
      `A step's block tables must have at most ${tables.size / 4 - layout.tables} entries ` +
        `(got ${data.tables.length - layout.tables})`,
    );
  }
  queue.writeBuffer(buffers.rows, 0, data.rows);
  queue.writeBuffer(tables, 0, data.tables);
  if (data.carries.length > 0) queue.writeBuffer(buffers.carries, 0, data.carries);
  queue.writeBuffer(counts.step.buffer, 0, Uint32Array.of(data.rows.length / ROW_WORDS, 0, 0, 0));
  queue.writeBuffer(counts.logits.buffer, 0, Uint32Array.of(data.chosen.length, 0, 0, 0));
  if (data.chosen.length > 0) queue.writeBuffer(buffers.chosen, 0, data.chosen);
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

/** Returns the largest number of rows per attention tile that all layers support. */
function smallestTile({ ops }: Plan): number {
  return ops.reduce(
    (rows, op) => op.op === "attention" ? Math.min(rows, tileRows(op.heads)) : rows,
    Infinity,
  );
}

function largestHead({ kv: { layers } }: Plan): number {
  return layers.reduce((largest, { headDim }) => Math.max(largest, headDim), 0);
}

/**
 * Creates the tables of cosines, then sines, of every position's angles. They are computed in f64, because a GPU's
 * functions are wrong for large angles.
 */
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
