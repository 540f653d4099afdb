import type { TensorList } from "./tensor_list.ts";

/** Adds a matrix and its bias to the list of tensors. */
export function affine(list: TensorList, name: string, module: string, rows: number, columns: number): void {
  list.matrix(name, module, rows, columns);
  list.vector(`${name}.bias`, `${module}.bias`, rows);
}

/** Adds a LayerNorm's weights and biases to the list of tensors. `map` is applied to the weights. */
export function affineNorm(
  list: TensorList,
  name: string,
  module: string,
  width: number,
  map?: (weight: number) => number,
): void {
  list.vector(`${name}.weight`, `${module}.weight`, width, { map });
  list.vector(`${name}.bias`, `${module}.bias`, width);
}
