/** Adds tensors that conversion makes of whole modules: transposed, or several as one. */
import { quote } from "../engine/gguf/errors.ts";
import { refuse } from "./errors.ts";
import type { TensorList } from "./tensor_list.ts";
import { joinTensors, type OutputTensor } from "./write/output_tensor.ts";

/** Modules of a joined tensor, and the rows that each contributes. */
type Parts = readonly (readonly [module: string, rows: number])[];

/** Adds a matrix that the checkpoint stores transposed, in floats: [columns, rows]. */
export function addTransposed(
  list: TensorList,
  name: string,
  module: string,
  rows: number,
  columns: number,
): void {
  const source = list.finder.stack(`${module}.weight`, [columns, rows]);
  reshape(list, [columns, rows], () => list.turned(name, source, { count: 1, rows, columns }));
}

/** Adds one matrix of the rows of several modules. */
export function addJoined(list: TensorList, name: string, parts: Parts, columns: number): void {
  const made = taken(list, () => {
    for (const [module, rows] of parts) list.matrix(name, module, rows, columns);
  });
  const other = made.find((tensor) => tensor.name !== made[0].name || tensor.type !== made[0].type);
  if (other) {
    const detail = `must have the same format as ${quote(parts[0][0])}, because they become one matrix`;
    refuse(list.finder.folder, `tensors of ${quote(name)}`, detail);
  }
  list.tensors.push(joinTensors(made, [columns, rowsOf(parts)]));
}

/** Adds one vector of the biases of several modules. */
export function addJoinedBiases(list: TensorList, name: string, parts: Parts): void {
  const made = taken(list, () => {
    for (const [module, length] of parts) list.vector(name, `${module}.bias`, length);
  });
  list.tensors.push(joinTensors(made, [rowsOf(parts)]));
}

/** Gives the tensor that `add` adds another shape. */
export function reshape(list: TensorList, shape: readonly number[], add: () => void): void {
  list.tensors.push(...taken(list, add).map((tensor) => ({ ...tensor, shape })));
}

/** Returns the tensors that `add` adds, without adding them. */
function taken(list: TensorList, add: () => void): OutputTensor[] {
  const start = list.tensors.length;
  add();
  return list.tensors.splice(start);
}

function rowsOf(parts: Parts): number {
  return parts.reduce((sum, [, rows]) => sum + rows, 0);
}
