import { ArchitectureKeys } from "./architecture_keys.ts";
import type { Hparams } from "./hparams.ts";
import type { GgufFile } from "../types.ts";

/** Hyper-parameters of hybrids of Gated DeltaNet and full attention, beyond the dense decoders'. */
export interface DeltaHparams {
  /** Layers to compute, without the last layers that only draft tokens. */
  readonly layers: number;
  /** Layers per period. The last layer of a period has full attention. */
  readonly attentionInterval: number;
  /** Number of query heads and of key heads; divides valueHeads. */
  readonly keyHeads: number;
  readonly valueHeads: number;
  /** Dimensions of a query, key or value head; a multiple of 32. */
  readonly headDim: number;
}

/** Limits of the kernels. */
const MAX = { keyHeads: 1024, valueHeads: 1024, headDim: 256, interval: 1024 };
const HEAD_DIM_STEP = 32;
const CONV_KERNEL = 4;

/**
 * Reads and checks `{architecture}.ssm.*` and related keys, with llama.cpp's defaults. Throws
 * GgufError(GGUF_HPARAM) naming the key.
 */
export function readDeltaHparams(file: GgufFile, h: Hparams): DeltaHparams {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const kernel = keys.count("ssm.conv_kernel", Infinity);
  if (kernel !== CONV_KERNEL) keys.refuse("ssm.conv_kernel", String(kernel), String(CONV_KERNEL));
  const keyHeads = keys.count("ssm.group_count", MAX.keyHeads);
  const valueHeads = keys.count("ssm.time_step_rank", MAX.valueHeads);
  if (valueHeads % keyHeads !== 0) {
    keys.refuse("ssm.group_count", String(keyHeads), `a divisor of the ${valueHeads} value heads`);
  }
  const headDim = keys.count("ssm.state_size", MAX.headDim);
  if (headDim % HEAD_DIM_STEP !== 0) {
    keys.refuse("ssm.state_size", String(headDim), `a multiple of ${HEAD_DIM_STEP}`);
  }
  const inner = keys.count("ssm.inner_size", MAX.valueHeads * MAX.headDim);
  if (inner !== valueHeads * headDim) {
    const allowed = `${valueHeads * headDim}, for ${valueHeads} heads of ${headDim}`;
    keys.refuse("ssm.inner_size", String(inner), allowed);
  }
  checkSections(keys, h.ropeDimensionCount / 2);
  return {
    layers: h.blockCount - keys.draftingLayers(h.blockCount),
    attentionInterval: keys.count("full_attention_interval", MAX.interval, 4),
    keyHeads,
    valueHeads,
    headDim,
  };
}

/**
 * Rotated pairs take positions from time, height and width in turn, as long as each section lasts. Pairs
 * beyond the sections get no position. Text has one position for all three, so only those pairs would change
 * the result.
 */
function checkSections(keys: ArchitectureKeys, pairs: number): void {
  const name = "rope.dimension_sections";
  const sections = keys.metadata.getNumbers(keys.name(name));
  if (!sections) return;
  const covered = Array.from({ length: pairs }, (_, i) => Math.floor(i / 3) < sections[i % 3]);
  if (covered.every((pair) => pair)) return;
  keys.refuse(
    name,
    Array.from(sections).join(", "),
    `sections that give each of the ${pairs} rotated pairs a position`,
  );
}
