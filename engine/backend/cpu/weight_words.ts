import { FORMATS } from "../../gguf/formats.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import { readFloats } from "../../gguf/float_tensor.ts";
import type { Dequantize, GgufFile, TensorInfo } from "../../gguf/types.ts";
import type { PlanTensor } from "../../plan/values.ts";
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

/** Some rows of a tensor, from row `first` on. */
export interface Piece {
  readonly first: number;
  readonly bytes: Uint8Array;
}

/** Returns a piece of a tensor in the kernels' format. */
export function pieceWords(index: number, t: PlanTensor, { first, bytes }: Piece): Uint8Array<ArrayBuffer> {
  const head = new WordWriter(24)
    .u32(index, t.kind === "vector" ? 1 : 0, FORMATS[t.info.type].id, t.columns, t.rows, first).bytes();
  const message = new Uint8Array(head.length + bytes.length);
  message.set(head);
  message.set(bytes, head.length);
  return message;
}

/** Returns a function that dequantizes blocks with the kernels. `call` calls `compy_dequantize`. */
export function dequantizer(
  call: (input: Uint8Array<ArrayBuffer>, answerBytes: number) => Promise<Uint8Array<ArrayBuffer>>,
): Dequantize {
  return async (type, blocks) => {
    const { id, elements, bytes } = FORMATS[type];
    const input = new Uint8Array(4 + blocks.length);
    new DataView(input.buffer).setUint32(0, id, true);
    input.set(blocks, 4);
    const values = await call(input, 4 * elements * blocks.length / bytes);
    return new Float32Array(values.buffer, values.byteOffset, values.length / 4);
  };
}
