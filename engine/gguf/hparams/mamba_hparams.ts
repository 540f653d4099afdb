import type { ArchitectureKeys } from "./architecture_keys.ts";

/** The shape of a model's Mamba2 layers, which are all equal. */
export interface MambaHparams {
  readonly heads: number;
  /** Channels of a head; a multiple of 16. */
  readonly headDim: number;
  /** Groups of heads that share write and read vectors; divides heads. */
  readonly groups: number;
  /** State values per channel; a multiple of 16. */
  readonly stateSize: number;
}

/** Limits of the Mamba2 kernels. */
const MAX = { heads: 4096, size: 256 };
const STEP = 16;
const CONV_KERNEL = 4;
/** Unit of a group's channels, because they are normed together and quantized in blocks. */
const GROUP_STEP = 32;

/** Reads and checks Mamba2's `{architecture}.ssm.*` keys. Throws GgufError(GGUF_HPARAM) naming the key. */
export function readMambaHparams(keys: ArchitectureKeys): MambaHparams {
  const kernel = keys.count("ssm.conv_kernel", Infinity);
  if (kernel !== CONV_KERNEL) keys.refuse("ssm.conv_kernel", String(kernel), String(CONV_KERNEL));
  const heads = keys.count("ssm.time_step_rank", MAX.heads);
  const groups = keys.count("ssm.group_count", MAX.heads);
  if (heads % groups !== 0) {
    keys.refuse("ssm.group_count", String(groups), `a divisor of the ${heads} heads`);
  }
  const stateSize = keys.count("ssm.state_size", MAX.size);
  if (stateSize % STEP !== 0) keys.refuse("ssm.state_size", String(stateSize), `a multiple of ${STEP}`);
  const inner = keys.count("ssm.inner_size", heads * MAX.size);
  if (inner % (heads * STEP) !== 0) {
    keys.refuse("ssm.inner_size", String(inner), `a multiple of ${heads * STEP}, for ${heads} heads`);
  }
  if (inner / groups % GROUP_STEP !== 0) {
    const allowed = `a divisor of ${inner} that leaves each group a multiple of ${GROUP_STEP} channels`;
    keys.refuse("ssm.group_count", String(groups), allowed);
  }
  return { heads, headDim: inner / heads, groups, stateSize };
}
