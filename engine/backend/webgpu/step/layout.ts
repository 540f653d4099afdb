/** The buffers of a step: the host writes them (`step_data.ts`) and kernels read them. */
import type { ContextParts } from "../ops/attention/attention_shape.ts";
import type { RowKind } from "../program.ts";

/** Slot number for "no slot": the state before a sequence's first row is all zeros. */
export const NO_SLOT = 0xffffffff;

export const ROW_WORDS = 4;
/** Words per entry of `carries`. */
export const CARRY_WORDS = 4;

/**
 * Layout of the table buffer: lists of spans, then the starts of the rows' block tables for each further layer group,
 * then the block tables.
 */
export interface TableLayout {
  /** Index of the first entry of the list of single rows, of the list of tiles, and of the block tables. */
  readonly singles: number;
  readonly tiles: number;
  readonly tables: number;
  /** Maximum rows in a tile of attention. */
  readonly tileRows: number;
  /**
   * Returns the index of the first entry that holds the starts of a group's block tables, for groups after the first.
   */
  basesOf(group: number): number;
}

/** Returns the table layout for steps of at most `maxRows` rows. */
export function tableLayout(maxRows: number, groups: number, tileRows: number): TableLayout {
  const bases = 3 * maxRows;
  return {
    singles: 0,
    tiles: maxRows,
    tables: bases + (groups - 1) * maxRows,
    tileRows,
    basesOf: (group) => bases + (group - 1) * maxRows,
  };
}

/** The GPU buffers that ops read besides weights. */
export interface StepBuffers {
  readonly activations: readonly GPUBuffer[]; // [program.buffers]
  /** Keys of the KV cache, split by heads if one binding cannot hold a layer. */
  readonly keys: readonly (readonly GPUBuffer[])[]; // [layers][parts]
  readonly values: readonly (readonly GPUBuffer[])[]; // [layers][parts]
  /** Recurrent states of all slots, one buffer per layer. */
  readonly states: readonly GPUBuffer[]; // [layers]
  /** The slots from which a step's sequences read their recurrent state, and to which they write it. */
  readonly carries: GPUBuffer;
  readonly rows: GPUBuffer;
  readonly tables: GPUBuffer;
  readonly layout: TableLayout;
  readonly angles: readonly GPUBuffer[]; // [tables]
  /** Row index of each row with a logits request. */
  readonly chosen: GPUBuffer;
  readonly parts: GPUBuffer;
  /** How attention splits contexts. `partials` holds the results of workgroups that share a context. */
  readonly contexts: ContextParts;
  readonly partials: GPUBuffer;
  /** Number of rows by kind, as uniforms. */
  readonly counts: Readonly<Record<RowKind, GPUBufferBinding>>;
  /** Maximum rows of a step by kind. */
  readonly most: Readonly<Record<RowKind, number>>;
}
