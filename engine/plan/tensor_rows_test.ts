import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { dequantize, weights } from "../../testing/synth/weights.ts";
import { Random } from "../../testing/random.ts";
import type { ByteSource } from "../gguf/byte_source.ts";
import { GgufError } from "../gguf/errors.ts";
import { parseGguf } from "../gguf/reader.ts";
import { GgufBuilder } from "../gguf/testing.ts";
import { onFastClock } from "../pacing/testing.ts";
import type { Dequantize, GgufFile, TensorInfo, TensorType } from "../gguf/types.ts";
import { matricesOf } from "./tensor_rows.ts";

const [HEADS, KEYS, VALUES, WIDTH] = [3, 2, 4, 32];
const ROWS = KEYS + VALUES;

const decode: Dequantize = (type, blocks) => {
  const { length } = blocks;
  const counts: { readonly [T in TensorType]?: number } = { F32: length / 4, Q8_0: length / 34 * 32 };
  return Promise.resolve(Float32Array.from(dequantize(type, blocks, counts[type]!)));
};

/** Returns a file with a matrix that has `ROWS` rows per head, and the values of the matrix. */
function fileOf(
  type: "F32" | "Q8_0",
  change = (_: Float32Array) => {},
): { file: GgufFile; values: Float32Array } {
  const count = HEADS * ROWS * WIDTH;
  const { buffer, byteOffset, byteLength } = weights(type, count, new Random(1));
  const bytes = new Uint8Array(buffer, byteOffset, byteLength).slice();
  if (type === "F32") change(new Float32Array(bytes.buffer));
  const file = parseGguf(new GgufBuilder().tensor("both", type, [WIDTH, HEADS * ROWS], bytes).build().bytes);
  return { file, values: Float32Array.from(dequantize(type, bytes, count)) };
}
const keys = (file: GgufFile) =>
  matricesOf(file, { name: "both", first: 0, of: ROWS, transposed: true }, [KEYS, WIDTH, HEADS]);
const valuesOf = (file: GgufFile) =>
  matricesOf(file, { name: "both", first: KEYS, of: ROWS }, [WIDTH, VALUES, HEADS]);
const made = async ({ made, byteLength }: TensorInfo) => {
  const bytes = await made!(decode);
  assertEquals(bytes.length, byteLength);
  return bytes;
};

Deno.test("matricesOf: takes the same rows of each head, in the file's format", async () => {
  for (const type of ["F32", "Q8_0"] as const) {
    const { file, values } = fileOf(type);
    const part = valuesOf(file);
    assertEquals([part.type, part.shape, part.name], [type, [WIDTH, VALUES, HEADS], "both[2:6]"]);
    const expected = Array.from(
      { length: HEADS },
      (_, head) => [...values.subarray((head * ROWS + KEYS) * WIDTH, (head + 1) * ROWS * WIDTH)],
    ).flat();
    assertEquals([...await decode(type, await made(part))], expected);
  }
});

Deno.test("matricesOf: transposes each head, and stores F16 if the file's format is quantized", async () => {
  for (const type of ["F32", "Q8_0"] as const) {
    const { file, values } = fileOf(type);
    const part = keys(file);
    assertEquals([part.type, part.name], [type === "F32" ? "F32" : "F16", "both[0:2]"]);
    const { buffer } = await made(part);
    const found = type === "F32" ? new Float32Array(buffer) : new Float16Array(buffer);
    const at = (i: number) =>
      values[(Math.floor(i / KEYS / WIDTH) * ROWS + i % KEYS) * WIDTH + Math.floor(i / KEYS) % WIDTH];
    const round = type === "F32" ? (x: number) => x : Math.f16round;
    assertEquals([...found], Array.from(found, (_, i) => round(at(i))));
  }
});

Deno.test("matricesOf: refuses wrong shapes and values that are not finite", async () => {
  const { file } = fileOf("F32", (values) => values[WIDTH] = Infinity);
  assertThrows(() => matricesOf(file, { name: "both", first: 0, of: 5 }, [WIDTH, 2, HEADS]), GgufError);
  const error = await assertRejects(() => made(keys(file)), GgufError, "finite");
  assertEquals(error.code, "GGUF_DATA");
});

Deno.test("matricesOf: reads each row once, one head at a time, and pauses between heads", async () => {
  const { file } = fileOf("Q8_0");
  const rowBytes = file.tensors.get("both")!.byteLength / ROWS / HEADS;
  const lengths: number[] = [];
  const open = async (path: string): Promise<ByteSource> => {
    const source = await file.open(path);
    const read = (offset: number, into: Uint8Array<ArrayBuffer>) => {
      lengths.push(into.length);
      return source.read(offset, into);
    };
    return { ...source, read };
  };
  for (
    const [part, count] of [[keys({ ...file, open }), KEYS], [valuesOf({ ...file, open }), VALUES]] as const
  ) {
    const { pauses } = await onFastClock(() => made(part));
    assertEquals(lengths.splice(0), Array(HEADS).fill(rowBytes * count));
    assertEquals(pauses, HEADS);
  }
});
