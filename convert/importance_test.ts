import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { openGguf } from "../engine/gguf/reader.ts";
import { GgufBuilder } from "../engine/gguf/testing.ts";
import { TINY } from "../testing/checkpoints.ts";
import type { ConvertOptions } from "./convert.ts";
import { ConvertError } from "./errors.ts";
import { ColumnWeights, type MatrixInputs, writeImportance } from "./importance.ts";
import { BF16, CheckpointFolder, Written } from "./testing.ts";

const HEAD = { dataset: "text.txt", chunks: 3, chunkTokens: 512 };

async function inFolder(test: (path: (name: string) => string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "compy-importance-" });
  try {
    await test((name) => join(folder, name));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns the inputs of one matrix. Columns `from` to `to` have 100 times the sum of the others. */
function inputs(columns: number, from: number, to: number): MatrixInputs {
  const sums = Float32Array.from({ length: columns }, (_, i) => i >= from && i < to ? 100 : 1);
  return { sums, counts: Float32Array.of(10) };
}

Deno.test("importance: writes llama.cpp's names, shapes and keys, and reads mean squares back", async () => {
  await inFolder(async (path) => {
    const experts = { sums: Float32Array.of(2, 4, 8, 16, 9, 9), counts: Float32Array.of(2, 4, 0) };
    const dense = { sums: Float32Array.of(5, 10), counts: Float32Array.of(5) };
    const all = new Map([["blk.0.ffn_up_exps.weight", experts], ["blk.0.attn_q.weight", dense]]);
    await writeImportance(path("a.gguf"), { ...HEAD, inputs: all });
    const { metadata, tensors } = await openGguf(path("a.gguf"));
    assertEquals(metadata.getString("general.type"), "imatrix");
    assertEquals(metadata.getStrings("imatrix.datasets"), ["text.txt"]);
    assertEquals(["imatrix.chunk_count", "imatrix.chunk_size"].map((key) => metadata.getNumber(key)), [
      3,
      512,
    ]);
    assertEquals([...tensors.values()].map(({ name, type, shape }) => [name, type, ...shape]), [
      ["blk.0.ffn_up_exps.weight.in_sum2", "F32", 2, 3],
      ["blk.0.ffn_up_exps.weight.counts", "F32", 1, 3],
      ["blk.0.attn_q.weight.in_sum2", "F32", 2, 1],
      ["blk.0.attn_q.weight.counts", "F32", 1, 1],
    ]);
    const weights = await ColumnWeights.read(path("a.gguf"));
    // An expert without inputs has equal weights.
    assertEquals(weights.of("blk.0.ffn_up_exps.weight", 2, 3), Float32Array.of(1, 2, 2, 4, 1, 1));
    assertEquals(weights.of("blk.0.attn_q.weight", 2, 1), Float32Array.of(1, 2));
    assertEquals(weights.of("output.weight", 2, 1), undefined);
    assertEquals([...weights.used], ["blk.0.ffn_up_exps.weight", "blk.0.attn_q.weight"]);
    await assertRejects(
      () => writeImportance(path("a.gguf"), { ...HEAD, inputs: all }),
      ConvertError,
      "exists",
    );
  });
});

Deno.test("importance: refuses other files, and names the tensor with invalid sums or another shape", async () => {
  await inFolder(async (path) => {
    const refused = async (detail: string) =>
      await assertRejects(() => ColumnWeights.read(path("bad")), ConvertError, detail);
    await Deno.writeTextFile(path("bad"), "\x02\0\0\0old format");
    await refused("llama.cpp's older .dat format is not supported");
    const write = async (
      tensors: readonly (readonly [name: string, shape: number[], values: number[]])[],
    ) => {
      const builder = new GgufBuilder();
      for (const [name, shape, values] of tensors) {
        builder.tensor(name, "F32", shape, new Uint8Array(Float32Array.from(values).buffer));
      }
      await Deno.writeFile(path("bad"), builder.build().bytes);
    };
    await write([["a.weight", [2], [1, 2]]]);
    await refused("no tensors named *.in_sum2");
    await write([["a.in_sum2", [2, 1], [1, 2]]]);
    await refused('tensor "a.in_sum2" must have F32 sums, and "a.counts" one F32 count per matrix');
    await write([["a.in_sum2", [2, 2], [1, 2, 3, 4]], ["a.counts", [1, 1], [1]]]);
    await refused("one F32 count per matrix");
    for (const value of [-1, NaN, Infinity]) {
      await write([["a.in_sum2", [2, 1], [1, value]], ["a.counts", [1, 1], [1]]]);
      await refused("must be finite and at least 0");
    }
    await write([["a.in_sum2", [2, 1], [1, 2]], ["a.counts", [1, 1], [1]]]);
    const weights = await ColumnWeights.read(path("bad"));
    for (const [columns, matrices] of [[4, 1], [1, 2], [2, 2]]) {
      try {
        weights.of("a", columns, matrices);
        assert(false, "taken");
      } catch (error) {
        const message = `"a" has inputs of 1 x 2 values, not ${matrices} x ${columns}`;
        assert(error instanceof ConvertError && error.message.includes(message), String(error));
      }
    }
  });
});

Deno.test("convert: --imatrix lowers the error of important columns, also in matrices with reordered columns", async () => {
  await using folder = await CheckpointFolder.make(BF16);
  await inFolder(async (path) => {
    const converted = async (options: Partial<ConvertOptions>) => {
      const { weighed } = await folder.convert(options);
      const written = await Written.read(folder.out);
      await Deno.remove(folder.out);
      return { written, weighed };
    };
    const [exact, plain] = [await converted({}), await converted({ quantize: "iq4_nl" })];
    assertEquals(plain.weighed, undefined);
    // The converter reorders the columns of ssm_out in heads of 32.
    const matrices = [["blk.0.ssm_out.weight", TINY.vHeads * TINY.linearDim], [
      "blk.1.ffn_down.weight",
      TINY.feedForward,
    ]] as const;
    const [from, to] = [35, 43];
    const all = new Map(matrices.map(([name, columns]) => [name, inputs(columns, from, to)]));
    await writeImportance(path("a.gguf"), { ...HEAD, inputs: all });
    const weighed = await converted({ quantize: "iq4_nl", importance: path("a.gguf") });
    assertEquals(weighed.weighed, 2);
    for (const [name, columns] of matrices) {
      const values = exact.written.values(name);
      const errorOf = ({ written }: { written: Written }) =>
        written.values(name).reduce((sum, value, i) => {
          const isIn = i % columns >= from && i % columns < to;
          return isIn ? sum + (value - values[i]) ** 2 : sum;
        }, 0);
      const share = errorOf(weighed) / errorOf(plain);
      assert(share < 0.8, `${name}: ${share}`);
    }
  });
});

Deno.test("convert: refuses an importance matrix of another model", async () => {
  await using folder = await CheckpointFolder.make(BF16);
  await inFolder(async (path) => {
    const convert = (name: string, columns: number) =>
      writeImportance(path(name), {
        ...HEAD,
        inputs: new Map([[`blk.${name}.weight`, inputs(columns, 0, 1)]]),
      })
        .then(() => folder.convert({ quantize: "iq4_nl", importance: path(name) }));
    await assertRejects(
      () => convert("90.ffn_up", 128),
      ConvertError,
      "names no quantized matrix of this model",
    );
    await assertRejects(
      () => convert("1.ffn_up", 64),
      ConvertError,
      '"blk.1.ffn_up.weight" has inputs of 1 x 64 values, not 1 x 128',
    );
    const ignored = () => folder.convert({ quantize: "q8_0", importance: path("1.ffn_up") });
    await assertRejects(ignored, ConvertError, "The format q8_0 does not use an importance matrix");
    assertEquals(folder.leftBehind(), []);
  });
});
