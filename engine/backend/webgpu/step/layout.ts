/** The buffers of a step: the host writes them (`step_data.ts`) and kernels read them. */
import type { ContextParts } from "../ops/attention/attention_shape.ts";
import type { RowKind } from "../program.ts";

/** Stands for no slot: the state before a sequence's first row is all zeros. */
export const NO_SLOT = 0xffffffff;

export const ROW_WORDS = 4;
/** Words per entry of `carries`. */
export const CARRY_WORDS = 4;

/**
 * Layout of the table buffer: lists of spans, then for each further layer group where each row's block table
 * begins, then the block tables.
 */
export interface TableLayout {
  /** First entries of the list of single rows, of the list of tiles, and of the block tables. */
  readonly singles: number;
  readonly tiles: number;
  readonly tables: number;
  /** Rows in a tile of attention. */
  readonly tileRows: number;
  /** Returns the first entry with the starts of the rows' block tables, for a group after the first. */
  basesOf(group: number): number;
}

/** Returns the layout for steps of at most `maxRows` rows. */
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

/** The buffers that ops read besides weights. */
export interface StepBuffers {
  readonly activations: readonly GPUBuffer[]; // [program.buffers]
  /** Split by heads where one binding cannot hold a layer. */
  readonly keys: readonly (readonly GPUBuffer[])[]; // [layers][parts]
  readonly values: readonly (readonly GPUBuffer[])[]; // [layers][parts]
  /** Slots of recurrent state. */
  readonly states: readonly GPUBuffer[]; // [layers]
  /** Slots that a step's sequences read their state from and write it to. */
  readonly carries: GPUBuffer;
  readonly rows: GPUBuffer;
  readonly tables: GPUBuffer;
  readonly layout: TableLayout;
  readonly angles: readonly GPUBuffer[]; // [tables]
  /** Row index of each row that wants logits. */
  readonly chosen: GPUBuffer;
  readonly parts: GPUBuffer;
  /** How attention splits contexts; `partials` holds the results of workgroups that share a context. */
  readonly contexts: ContextParts;
  readonly partials: GPUBuffer;
  /** Number of rows by kind, as uniforms. */
  readonly counts: Readonly<Record<RowKind, GPUBufferBinding>>;
  /** Maximum rows of a step by kind. */
  readonly most: Readonly<Record<RowKind, number>>;
}
