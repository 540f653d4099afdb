/** Adds tensors that are made from whole modules: a transposed matrix, or several modules joined into one tensor. */
import { quote } from "../engine/gguf/errors.ts";
import { refuse } from "./errors.ts";
import type { TensorList } from "./tensor_list.ts";
import { joinTensors, type OutputTensor } from "./write/output_tensor.ts";

/** Modules of a joined tensor, each with its number of rows. */
type Parts = readonly (readonly [module: string, rows: number])[];

/** Adds a matrix that the checkpoint stores transposed, as [columns, rows], in a float type. */
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

/** Adds one matrix that joins the rows of several modules. Throws if their formats differ. */
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

/** Adds one vector that joins the biases of several modules. */
export function addJoinedBiases(list: TensorList, name: string, parts: Parts): void {
  const made = taken(list, () => {
    for (const [module, length] of parts) list.vector(name, `${module}.bias`, length);
  });
  list.tensors.push(joinTensors(made, [rowsOf(parts)]));
}

/** Calls `add`, and gives `shape` to each tensor that it adds to the list. */
export function reshape(list: TensorList, shape: readonly number[], add: () => void): void {
  list.tensors.push(...taken(list, add).map((tensor) => ({ ...tensor, shape })));
}

/** Calls `add`, removes its new tensors from the list, and returns them. */
function taken(list: TensorList, add: () => void): OutputTensor[] {
  const start = list.tensors.length;
  add();
  return list.tensors.splice(start);
}

function rowsOf(parts: Parts): number {
  return parts.reduce((sum, [, rows]) => sum + rows, 0);
}
