import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { Random } from "../../testing/random.ts";
import { safetensors, storeFloats, withHeader } from "../../testing/checkpoints.ts";
import { ConvertError } from "../errors.ts";
import { readSafetensors } from "./safetensors.ts";
import { type SafeTensor } from "./tensors.ts";

function read(bytes: Uint8Array): SafeTensor[] {
  const path = Deno.makeTempFileSync({ suffix: ".safetensors" });
  try {
    Deno.writeFileSync(path, bytes);
    using file = Deno.openSync(path);
    return readSafetensors(path, file);
  } finally {
    Deno.removeSync(path);
  }
}

const refusal = (bytes: Uint8Array) => assertThrows(() => read(bytes), ConvertError).message;

/** Returns a file with the given header entries and eight bytes of data. */
const withEntries = (entries: unknown) => withHeader(JSON.stringify(entries), [new Uint8Array(8)]);
const two = (changes: object) => ({ a: { dtype: "F32", shape: [2], data_offsets: [0, 8], ...changes } });

Deno.test("safetensors: reads tensors at the header's offsets, in any order and when empty", () => {
  const a = storeFloats("F32", [2, 2], Float32Array.of(1, 2, 3, 4));
  const none = storeFloats("F16", [0, 3], new Float32Array());
  const b = storeFloats("BF16", [3], Float32Array.of(1, 2, 3));
  const found = read(safetensors([["b", b], ["none", none], ["a", a]]));
  const start = found[0].offset;
  assertEquals(
    found.map((
      { name, dtype, shape, offset, byteLength },
    ) => [name, dtype, shape, offset - start, byteLength]),
    [["b", "BF16", [3], 0, 6], ["none", "F16", [0, 3], 6, 0], ["a", "F32", [2, 2], 6, 16]],
  );
});

const BAD: Record<string, [entries: unknown, words: string]> = {
  "an entry that is no object": [{ a: 7 }, `tensor "a": must be an object (got 7)`],
  "an unknown dtype": [two({ dtype: "F4" }), `(got "F4")`],
  "a dtype from the prototype": [two({ dtype: "constructor" }), `(got "constructor")`],
  "no dtype": [two({ dtype: undefined }), "(got nothing)"],
  "a negative size": [two({ shape: [-2] }), "shape must be"],
  "a fraction": [two({ shape: [1.5] }), "shape must be"],
  "a size beyond whole numbers": [two({ shape: [2 ** 53] }), "shape must be"],
  "sizes whose product is huge": [two({ shape: [2 ** 40, 2 ** 40] }), "(got 8)"],
  "too many dimensions": [two({ shape: Array(9).fill(1) }), "at most 8"],
  "a shape that is no array": [two({ shape: { length: 1 } }), "shape must be"],
  "a shape of other bytes": [two({ shape: [3] }), "must have 12 bytes for F32 of shape 3 (got 8)"],
  "one offset": [two({ data_offsets: [0] }), "data_offsets must be"],
  "offsets that go back": [two({ data_offsets: [8, 0] }), "data_offsets must be"],
  "offsets before the data": [two({ data_offsets: [-8, 0] }), "data_offsets must be"],
  "offsets past the end": [two({ data_offsets: [0, 16], shape: [4] }), "the file is cut short"],
  "overlapping tensors": [
    { ...two({}), b: { dtype: "F32", shape: [1], data_offsets: [4, 8] } },
    "overlap the tensor before",
  ],
  "a hole": [two({ shape: [1], data_offsets: [4, 8] }), "leave a hole"],
  "data that nobody owns": [
    two({ shape: [1], data_offsets: [0, 4] }),
    "there are 4 bytes after the last tensor",
  ],
  "an array": [[1], "header: must be an object (got an array of 1"],
};
for (const [what, [entries, words]] of Object.entries(BAD)) {
  Deno.test(`safetensors: rejects ${what}`, () => assertStringIncludes(refusal(withEntries(entries)), words));
}

Deno.test("safetensors: rejects a duplicate name because it leaves a hole", () => {
  const entry = (begin: number) => `"a":{"dtype":"U8","shape":[4],"data_offsets":[${begin},${begin + 4}]}`;
  const bytes = withHeader(`{${entry(0)},${entry(4)}}`, [new Uint8Array(8)]);
  assertStringIncludes(refusal(bytes), "leave a hole");
});

Deno.test("safetensors: rejects a header longer than the file or the limit before reading it", () => {
  for (const length of [9n, 1n << 40n, (1n << 64n) - 1n, BigInt(16 * 1024 * 1024 + 1)]) {
    const bytes = new Uint8Array(16);
    new DataView(bytes.buffer).setBigUint64(0, length, true);
    assertStringIncludes(refusal(bytes), "header length: ");
  }
});

Deno.test("safetensors: rejects a header that is not UTF-8 or not JSON", () => {
  const bytes = withHeader(`{"a":1}`, []);
  assertStringIncludes(refusal(withHeader("{", [])), "invalid JSON");
  bytes[10] = 0xff;
  assertStringIncludes(refusal(bytes), "valid UTF-8");
});

Deno.test("safetensors: reads within bounds or rejects each of 500 mutated files", () => {
  const whole = safetensors([
    ["first", storeFloats("F32", [2, 3], new Float32Array(6))],
    ["second", storeFloats("BF16", [4], new Float32Array(4))],
  ]);
  const random = new Random(7);
  let refused = 0;
  for (let i = 0; i < 500; i++) {
    const bytes = whole.slice(0, random.below(8) === 0 ? random.below(whole.length) : whole.length);
    for (let n = 0; n <= random.below(3) && bytes.length > 0; n++) {
      bytes[random.below(bytes.length)] = 32 + random.below(96);
    }
    try {
      for (const { offset, byteLength } of read(bytes)) assert(offset + byteLength <= bytes.length);
    } catch (error) {
      assert(error instanceof ConvertError, String(error));
      refused++;
    }
  }
  assert(refused > 100, String(refused));
});
