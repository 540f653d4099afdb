import { quote } from "../../engine/gguf/errors.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { isFloat, type SafeTensor } from "../checkpoint/tensors.ts";
import { refuse } from "../errors.ts";
import { computedFloats } from "../quantized/computed.ts";
import { readNumbers, refuseTensor, wrongShape } from "../quantized/numbers.ts";
import type { Adapter, LowRank } from "./adapter.ts";

/** Maximum number of values of a pair's first matrix, which is read into memory as a whole. */
const MAX_VALUES = 1 << 26;

/**
 * Adds the adapter's changes to the checkpoint's matrices, which are then computed when they are read. Throws
 * ConvertError for a module that the checkpoint lacks, and for shapes that differ.
 */
export function mergeAdapter(checkpoint: Checkpoint, adapter: Adapter): void {
  for (const [module, change] of adapter.changes) {
    const base = names(module).flatMap((name) => checkpoint.tensors.get(`${name}.weight`) ?? [])[0];
    if (!base) {
      refuse(
        change.a.file,
        `module ${quote(module)}`,
        `the checkpoint ${checkpoint.folder} does not have this matrix`,
      );
    }
    checkpoint.tensors.set(base.name, merged(checkpoint, base, adapter.checkpoint, change));
  }
}

/** Returns possible names of a module, in a text checkpoint and in multimodal checkpoints. */
function names(module: string): string[] {
  return [module, module.replace(/^model\./, "model.language_model."), `language_model.${module}`];
}

function merged(
  checkpoint: Checkpoint,
  base: SafeTensor,
  weights: Checkpoint,
  { a, b, scale, base: own }: LowRank,
): SafeTensor {
  if (!isFloat(base.dtype)) {
    refuseTensor(
      base,
      `must have floats, or a quantization that is read as floats, to merge an adapter (got ${base.dtype})`,
    );
  }
  const [rank, columns] = a.shape;
  if (String(base.shape) !== String([b.shape[0], columns])) {
    wrongShape(base, `${b.shape[0]} x ${columns} to match the adapter`);
  }
  if (own && String(own.shape) !== String(base.shape)) wrongShape(own, base.shape.join(" x "));
  if (rank * columns > MAX_VALUES) refuseTensor(a, `must have at most ${MAX_VALUES} values`);
  const { name, file, shape, format = base.dtype } = base;
  const about = { name, file, shape, format: `${format} with LoRA` };
  const tensor = computedFloats(checkpoint, about, "F32", (start, out) => {
    const inner = readNumbers(weights, a);
    const rows = out.length / columns;
    const outer = readNumbers(weights, b, start * rank, rows * rank);
    const held = readNumbers(own ? weights : checkpoint, own ?? base, start * columns, out.length);
    const sums = new Float64Array(columns);
    for (let row = 0; row < rows; row++) {
      sums.fill(0);
      for (let k = 0; k < rank; k++) {
        const factor = scale * outer[row * rank + k];
        for (let i = 0; i < columns; i++) sums[i] += factor * inner[k * columns + i];
      }
      for (let i = 0; i < columns; i++) out[row * columns + i] = held[row * columns + i] + sums[i];
    }
    if (!out.every(Number.isFinite)) refuseTensor(a, "merging it gives weights that are not finite");
  });
  return { ...tensor, rounded: base.dtype === "F32" ? undefined : "F16" };
}
