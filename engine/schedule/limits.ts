/** Limits of an engine: sequences, memory and rows. */
export interface EngineLimits {
  /** Maximum number of running sequences. */
  readonly parallel: number;
  /** Number of KV blocks in the pool. */
  readonly kvBlocks: number;
  /**
   * Number of KV blocks that cached prefixes may fill. Beyond this number, a cached block is evicted before an unused
   * block is taken. By default, cached prefixes may fill all blocks.
   */
  readonly kvCached?: number;
  /** Window sizes in tokens of the KV cache groups after the first; 0 means no window. By default none. */
  readonly kvWindows?: readonly number[];
  /** Maximum rows (tokens) in one step. */
  readonly maxRows: number;
  /**
   * Number of rows with which a step is normally filled; by default maxRows. Only a text that must be computed whole
   * may exceed it, in a separate step.
   */
  readonly stepRows?: number;
  /**
   * Tile size in rows: a multiple of this number is as fast as slightly fewer rows. A row beyond a multiple costs
   * more than in a separate step (docs/lab/2026-11.md, "Kernels").
   */
  readonly wholeRows?: number;
  /** Cost of a turn among tenants; by default the SLICE of Fairness. */
  readonly slice?: number;
  /** Maximum rows in one step that need logits. */
  readonly maxLogitRows: number;
  /** Maximum number of waiting requests. */
  readonly queue: number;
  /** Number of recurrent-state slots: more than `parallel` + `draftSlots`. Only for models with recurrent layers. */
  readonly stateSlots?: number;
  /**
   * How many of the state slots are for sequences with drafts: one slot per sequence, and with `carriesRows` also one
   * slot per draft. 0 by default.
   */
  readonly draftSlots?: number;
  /** Whether the slots only hold the rows that a drafting layer carries from token to token. */
  readonly carriesRows?: boolean;
}

/** Throws RangeError for a limit that is not a whole number or too small. */
export function checkLimits({ kvWindows: _, carriesRows: __, ...limits }: EngineLimits): void {
  for (const [name, value] of Object.entries(limits)) {
    const least = leastOf(name as keyof typeof limits, limits);
    if (value === undefined || (Number.isSafeInteger(value) && value >= least)) continue;
    throw new RangeError(
      `Invalid engine limit ${name}: must be a whole number, ${least} or more (got ${value})`,
    );
  }
}

/** Returns the smallest valid value of a limit. */
function leastOf(name: keyof EngineLimits, { parallel, draftSlots = 0 }: EngineLimits): number {
  if (name === "queue" || name === "draftSlots") return 0;
  return name === "stateSlots" ? parallel + draftSlots + 1 : 1;
}
