import { assert, assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { lower } from "../../engine/backend/webgpu/lowering.ts";
import { openGguf, parseGguf } from "../../engine/gguf/reader.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { CPU_FORMATS } from "../models/parity_cases.ts";
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
