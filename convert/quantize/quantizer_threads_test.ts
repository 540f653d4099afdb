import { assert, assertEquals, assertRejects } from "@std/assert";
import { Random } from "../../testing/random.ts";
import { ConvertError } from "../errors.ts";
import { BF16, CheckpointFolder } from "../testing.ts";
import type { QuantizeTo } from "./quantize_to.ts";
import { QuantizerThreads } from "./quantizer_threads.ts";

const COLUMNS = 1024;
const VALUES = 128 * COLUMNS;

function draw(count: number, seed: number): Float32Array<ArrayBuffer> {
  const random = new Random(seed);
  return Float32Array.from({ length: count }, () => random.unit() - 0.5);
}

Deno.test("quantizer threads: results do not depend on the number of threads, and arrive in order", async () => {
  const weights = {
    values: draw(2 * COLUMNS, 9).map(Math.abs),
    columns: COLUMNS,
    rows: VALUES / COLUMNS,
  };
  const quantized = async (count: number) => {
    using threads = new QuantizerThreads(count);
    const arrived: number[] = [];
    // The last task is too small for a worker. The other tasks belong to two matrices.
    const results = await Promise.all([VALUES, VALUES, COLUMNS].map(async (length, i) => {
      const task = {
        to: "q3_k" as const,
        values: draw(length, i),
        weights: { ...weights, first: i * VALUES },
      };
      const found = await threads.quantize(task);
      arrived.push(i);
      return found;
    }));
    assertEquals(arrived, [0, 1, 2]);
    return results;
  };
  assertEquals(await quantized(3), await quantized(1));
});

Deno.test("quantizer threads: a failing task rejects with the same error on every thread", async () => {
  for (const count of [1, 2]) {
    using threads = new QuantizerThreads(count);
    const task = { to: "nothing" as QuantizeTo, values: new Float32Array(VALUES) };
    await assertRejects(() => threads.quantize(task), ConvertError, "Cannot quantize to nothing: ");
  }
});

/** Returns a checkpoint whose embedding has three chunks. The value at index `broken` is NaN. */
function largeCheckpoint(broken?: number): Promise<CheckpointFolder> {
  return CheckpointFolder.make({ ...BF16, model: "qwen3" }, ({ config, tensors }) => {
    const [name, { dtype, shape: [, columns] }] = [...tensors].find(([name]) =>
      name.includes("embed_tokens")
    )!;
    const rows = 9_000;
    const words = new Uint16Array(draw(rows * columns, 5).buffer).filter((_, i) => i % 2 === 1);
    if (broken !== undefined) words[broken] = 0x7fc0;
    config.vocab_size = rows;
    tensors.set(name, { dtype, shape: [rows, columns], bytes: new Uint8Array(words.buffer) });
  });
}

Deno.test("convert: writes the same file and report with one thread and with three", async () => {
  await using folder = await largeCheckpoint();
  const one = await folder.convert({ quantize: "q4_0", threads: 1 });
  const file = await Deno.readFile(folder.out);
  await Deno.remove(folder.out);
  const shares: number[] = [];
  const progress = (_: string, done: number, total: number) => void shares.push(done / total);
  const three = await folder.convert({ quantize: "q4_0", threads: 3, progress });
  assertEquals(three, one);
  assert(shares.filter((share) => share < 1).length > 3);
  assertEquals(await Deno.readFile(folder.out), file);
});

Deno.test("convert: names the tensor with a value that a thread cannot quantize, and leaves no file", async () => {
  await using folder = await largeCheckpoint(1_000_000);
  const words = 'embed_tokens.weight": it has values that Q4_0 cannot hold';
  await assertRejects(() => folder.convert({ quantize: "q4_0", threads: 2 }), ConvertError, words);
  assertEquals(folder.leftBehind(), []);
});
