import { assert, assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { lower } from "../../engine/backend/webgpu/lowering.ts";
import { openGguf, parseGguf } from "../../engine/gguf/reader.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { CPU_FORMATS } from "../models/parity_cases.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { Random } from "../../testing/random.ts";
import { withTensors } from "../../testing/split_gguf.ts";
import { dequantize, weights } from "../../testing/synth/weights.ts";
import { synthesize } from "../../testing/synth/synth.ts";

/* CPU-only formats. tests/models/parity_test.ts and determinism_test.ts check their answers. */

const model = (type: TensorType) => synthesize({ architecture: "llama", types: [type], seed: 1, layers: 1 });

Deno.test("CPU-only formats: the GPU refuses each format, and the message names the format and the tensor", () => {
  for (const format of CPU_FORMATS) {
    assertThrows(
      () => lower(buildPlan(parseGguf(model(format as TensorType)))),
      Error,
      `Cannot compute with ${format} on the GPU yet (tensor "token_embd.weight"); use backend: "cpu"`,
    );
  }
});

Deno.test("CPU-only formats: auto selects the CPU and says why", async () => {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    await Deno.writeFile(path, model("IQ2_XXS"));
    const file = await openGguf(path);
    const size = { kvBlocks: 1, maxRows: 1, maxLogitRows: 1 };
    const { backend, choice } = await prepareBackend(file, buildPlan(file), size, { backend: "auto" });
    backend.close();
    assertEquals(backend.info.name, "cpu");
    assert(choice.includes("Cannot compute with IQ2_XXS on the GPU"), choice);
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("CPU-only formats: embedding look-up returns the values of the reference dequantizers", async () => {
  const bytes = model("F32");
  const tensors = Array.from(
    parseGguf(bytes).tensors.values(),
    ({ name, type, shape, offset, byteLength }) => (
      { name, type, shape, bytes: bytes.subarray(offset, offset + byteLength) }
    ),
  );
  const embedding = tensors.find(({ name }) => name === "token_embd.weight")!;
  const count = embedding.shape.reduce((a, b) => a * b);
  const logits = async (type: TensorType, table: ArrayBufferView) => {
    const other = {
      ...embedding,
      type,
      bytes: new Uint8Array(table.buffer, table.byteOffset, table.byteLength),
    };
    const file = withTensors(bytes, tensors.map((tensor) => tensor === embedding ? other : tensor));
    using loaded = await KernelModel.load(file, { kvBlocks: 2, maxRows: 32, maxLogitRows: 1 });
    const tokens = Array.from({ length: 32 }, (_, i) => 40 + i);
    const [[row]] = await loaded.step([{
      tokens,
      blockTable: Int32Array.of(0, 1),
      wanted: [{ candidates: 5 }],
    }]);
    return row;
  };
  for (const format of CPU_FORMATS) {
    const type = format as TensorType;
    const table = weights(type, count, new Random(7)) as Uint8Array;
    const floats = Float32Array.from(dequantize(type, table, count));
    assertEquals(await logits(type, table), await logits("F32", floats), format);
  }
});
