import { GgufError, quote } from "../../gguf/errors.ts";
import { readFloats } from "../../gguf/float_tensor.ts";
import type { GgufFile, TensorInfo } from "../../gguf/types.ts";
import { WordWriter } from "../../plan/words.ts";

/** Returns a tensor's factors in the kernels' format. Throws GgufError for a factor that is not a finite number. */
export async function factorWords(
  file: GgufFile,
  index: number,
  factors: TensorInfo,
): Promise<Uint8Array<ArrayBuffer>> {
  const values = await readFloats(file, factors);
  if (!values.every(Number.isFinite)) {
    throw new GgufError("GGUF_DATA", "must have only finite numbers", {
      field: `tensor ${quote(factors.name)}`,
    });
  }
  return new WordWriter().u32(index).f32s(values).bytes();
}
