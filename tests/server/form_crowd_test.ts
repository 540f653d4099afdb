import { assert, assertEquals } from "@std/assert";
import { gpuTest } from "../../testing/gpu.ts";
import { askCrowds, bare } from "./form_crowd.ts";

Deno.test("many constrained requests: each random request gets the answer that it gets alone, although clients disconnect", async () => {
  const figures = await askCrowds({ rounds: 1, seed: 4 });
  assertEquals(figures.wrong, []);
  assertEquals(figures.failed, []);
  assert(figures.whole > 8 && figures.left > 2, JSON.stringify(figures));
});

gpuTest(
  "many constrained requests: on the GPU, each random request gets the answer that it gets alone, although clients disconnect",
  async () => {
    const figures = await askCrowds({ rounds: 1, seed: 4, backend: "webgpu" });
    assertEquals([...figures.wrong, ...figures.failed], []);
    assert(figures.whole > 8 && figures.left > 2, JSON.stringify(figures));
  },
);

Deno.test("many constrained requests: the comparison ignores fields that a stream omits", () => {
  const choice = { index: 0, finish_reason: "length" };
  const whole = { ...choice, message: { content: null, reasoning_content: "a" }, logprobs: { content: [] } };
  const streamed = { ...choice, message: { reasoning_content: "a" }, logprobs: null };
  assertEquals(bare(200, { choices: [streamed] }), bare(200, { choices: [whole] }));
});
