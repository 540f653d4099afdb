/** The buffers of a step: what the host writes (`step_data.ts`) and kernels read. */
import type { ContextParts } from "../ops/attention/attention_shape.ts";
import type { RowKind } from "../program.ts";

/** No slot: the state before a sequence's first row is all zeros. */
export const NO_SLOT = 0xffffffff;

export const ROW_WORDS = 4;
/** Words of one entry of `carries`. */
export const CARRY_WORDS = 4;

/** Where the buffer of tables has what: lists of spans, where tables begin of rows in groups after the first, tables. */
export interface TableLayout {
  /** First entries of the lists of single rows and of tiles, and of the block tables. */
  readonly singles: number;
  readonly tiles: number;
  readonly tables: number;
  /** Rows of a tile of attention. */
  readonly tileRows: number;
  /** First of the entries that say where each row's table begins of a group after the first. */
  basesOf(group: number): number;
}

/** For steps of up to so many rows. */
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
