/**
 * The compiled form of a model: a flat list of fused ops over named buffers. Views, reshapes and transposes
 * are never ops. Values that change per step (rows, rows with logits, KV lengths) are not part of a plan.
 */
import { DEFAULT_KV_TYPE, KV_BLOCK_TOKENS, type KvType, type WindowTable } from "./choices.ts";
import type { PlanOp } from "./ops/registry.ts";
import {
  CONV_TAPS,
  DeltaShape,
  KvLayer,
  KvShape,
  MambaShape,
  NO_MATRICES,
  PlanBuffer,
  PlanTensor,
  RopeAngles,
  StateLayer,
} from "./values.ts";

export type { ActivationPrecision } from "./choices.ts";

export type { PlanOp };
export * from "./values.ts";

export interface Plan {
  readonly architecture: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly tensors: readonly PlanTensor[];
  readonly buffers: readonly PlanBuffer[];
  readonly ops: readonly PlanOp[];
  /** Rotary angles by table. */
  readonly rope: readonly RopeAngles[];
  readonly kv: KvShape;
  /** State of each recurrent layer. */
  readonly states: readonly StateLayer[];
}

/** Returns the plan with another KV cache type. */
export function withKvType(plan: Plan, type: KvType = DEFAULT_KV_TYPE): Plan {
  return { ...plan, kv: { ...plan.kv, type } };
}

/** Returns the plan for sequences of up to `contextLength` tokens. */
export function withContext(plan: Plan, contextLength: number): Plan {
  const rope = plan.rope.map((angles) => {
    const { long, ...others } = angles;
    return long && contextLength > long.beyond ? { ...others, frequencies: long.frequencies } : angles;
  });
  return { ...plan, rope };
}

/** Number of values of a head that share a scale in a KV cache in q8_0 or q4_0. */
const KV_SCALED = 32;

/**
 * Returns the bytes of a token's keys and values in one layer of the KV cache. In f16 the CPU stores a scale with each
 * head; the GPU has none, which saves 1 %. In q8_0 a head's last scale may cover fewer values. In q4_0 heads are padded
 * to whole scales. Values take 4 bits and keys 6: 5 bits on average.
 */
export function kvBytesPerLayer(type: KvType, layer: HeadSizes): number {
  return sidesOf(type, layer).reduce((sum, bytes) => sum + bytes);
}

/** Returns the bytes of a token's keys in one layer, as kvBytesPerLayer does for keys and values. */
export function keyBytesPerLayer(type: KvType, layer: HeadSizes): number {
  return sidesOf(type, layer)[0];
}

type HeadSizes = Pick<KvLayer, "heads" | "headDim">;

/** Returns the bytes of a token's keys and of its values. */
function sidesOf(type: KvType, { heads, headDim }: HeadSizes): [keys: number, values: number] {
  const scales = Math.ceil(headDim / KV_SCALED);
  if (type === "q4_0") {
    return [heads * scales * (6 * KV_SCALED / 8 + 2), heads * scales * (4 * KV_SCALED / 8 + 2)];
  }
  const side = heads * (type === "f16" ? 2 * headDim + 2 : headDim + 2 * scales);
  return [side, side];
}

/** Returns the bytes of a token in the KV cache, over all layers. */
export function kvBytesPerToken({ kv: { type, layers } }: Plan): number {
  return layers.reduce((sum, layer) => sum + kvBytesPerLayer(type, layer), 0);
}

/**
 * Returns the bytes of a KV block: keys and values of KV_BLOCK_TOKENS tokens in all layers of the largest
 * group.
 */
export function kvBlockBytes(plan: Plan): number {
  return Math.max(...kvGroupBytes(plan));
}

/** Returns per group the bytes of keys and values of KV_BLOCK_TOKENS tokens in its layers. */
export function kvGroupBytes({ kv: { type, layers, windows } }: Plan): number[] {
  const groups = windows.map(() => 0);
  for (const layer of layers) groups[layer.group] += KV_BLOCK_TOKENS * kvBytesPerLayer(type, layer);
  return groups;
}

/**
 * Returns the block tables of a sequence that never frees blocks. Block b of `blocks` stands for one block per group: b
 * x groups, b x groups + 1 and so on.
 */
export function wholeTables(
  { kv: { windows } }: Plan,
  blocks: Int32Array,
): { blockTable: Int32Array; windowTables: WindowTable[] } {
  const [blockTable, ...others] = windows.map((_, group) => blocks.map((b) => b * windows.length + group));
  return { blockTable, windowTables: others.map((blocks) => ({ first: 0, blocks })) };
}

/** Returns whether the plan returns only rows of whole texts, and no tokens. */
export function isEncoder(plan: Plan): boolean {
  return !plan.ops.some((op) => op.op === "candidates");
}

/** Returns the number of columns of a pooled row; 0 if the plan does not pool. */
export function pooledColumns(plan: Plan): number {
  const op = plan.ops.find((op) => op.op === "return_pooled");
  return op ? plan.buffers[op.x].columns : 0;
}

/** Returns the number of sums that the plan's tallies add to a step's output. */
export function tallyCount({ ops, buffers }: Plan): number {
  const counts = ops.map((op) => {
    if (op.op !== "tally") return 0;
    const { columns } = buffers[op.x];
    return op.chosen ? op.chosen.count * (columns + 1) : columns;
  });
  return counts.reduce<number>((sum, count) => sum + count, 0);
}

/**
 * Returns the state of a Gated DeltaNet layer: inputs of queries, keys and values, and a square matrix per
 * value head.
 */
export function deltaState({ keyHeads, valueHeads, headDim }: Omit<DeltaShape, "layer">): StateLayer {
  return {
    conv: { inputs: CONV_TAPS - 1, channels: (2 * keyHeads + valueHeads) * headDim },
    matrices: { heads: valueHeads, rows: headDim, columns: headDim },
  };
}

/**
 * Returns the state of a Mamba2 layer: convolution inputs, and a matrix [headDim, stateSize] per head. The first value
 * of one extra column is a factor on the whole matrix.
 */
export function mambaState({ heads, headDim, groups, stateSize }: Omit<MambaShape, "layer">): StateLayer {
  return {
    conv: { inputs: CONV_TAPS - 1, channels: heads * headDim + 2 * groups * stateSize },
    matrices: { heads, rows: headDim, columns: stateSize + 1 },
  };
}

/** Returns the bytes of one sequence's recurrent state, over all layers. */
export function stateBytes({ states }: Plan): number {
  return states.reduce((sum, { conv, matrices }) => {
    const { heads, rows, columns } = matrices ?? NO_MATRICES;
    return sum + 4 * (conv.inputs * conv.channels + heads * rows * columns);
  }, 0);
}
