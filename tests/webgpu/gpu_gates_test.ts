import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import type { Accuracy, Arithmetic } from "../../engine/backend/backend.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { GpuError } from "../../engine/backend/webgpu/errors.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

const SIZE = { kvBlocks: 2, stateSlots: 1, maxRows: 8, maxLogitRows: 1 };

fullTier.test("accuracy gates: a recurrent model is refused in f16, and auto says so", async () => {
  const path = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    const types = ["Q8_0"] as const;
    await Deno.writeFile(
      path,
      synthesize({ architecture: "qwen35", types, layers: 4, seed: 3, vocabulary: 300 }),
    );
    const file = await openGguf(path);
    const plan = buildPlan(file);
    const prepare = (backend: "webgpu" | "auto", arithmetic: Arithmetic, accuracy?: Accuracy) =>
      prepareBackend(file, plan, SIZE, { backend, arithmetic, accuracy });
    const why =
      "Cannot compute qwen35 in f16: models with recurrent layers fail the accuracy gates in this arithmetic";
    await assertRejects(() => prepare("webgpu", "f16"), GpuError, why);
    const { backend, choice } = await prepare("auto", "f16");
    const advice = 'use arithmetic: "f32", or accuracy: "any" as well';
    assertEquals([backend.info.name, choice], ["cpu", `auto: ${why}; ${advice}`]);
    backend.close();
    // f32 passes the gates, and --accuracy any disables them, so only a missing adapter can make these fail.
    for (const [arithmetic, accuracy] of [["f32"], ["f16", "any"]] as const) {
      try {
        const { backend } = await prepare("webgpu", arithmetic, accuracy);
        assertEquals(backend.info.name, "webgpu");
        backend.close();
      } catch (error) {
        assertMatch((error as Error).message, /found no adapter|no working 16-bit floats/);
      }
    }
  } finally {
    await Deno.remove(path);
  }
});
