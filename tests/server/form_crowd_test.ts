import { assert, assertEquals } from "@std/assert";
import { gpuTest } from "../../testing/gpu.ts";
import { askCrowds, bare } from "./form_crowd.ts";

Deno.test("constrained crowd: random requests get the same answers as alone despite disconnects", async () => {
  const figures = await askCrowds({ rounds: 1, seed: 4 });
  assertEquals(figures.wrong, []);
  assertEquals(figures.failed, []);
  assert(figures.whole > 8 && figures.left > 2, JSON.stringify(figures));
});

gpuTest(
  "a crowd of chance gets the answers in a form on the GPU that each gets alone, whoever leaves",
  async () => {
    const figures = await askCrowds({ rounds: 1, seed: 4, backend: "webgpu" });
    assertEquals([...figures.wrong, ...figures.failed], []);
    assert(figures.whole > 8 && figures.left > 2, JSON.stringify(figures));
  },
);

Deno.test("constrained crowd: the comparison ignores fields that a stream omits", () => {
  const choice = { index: 0, finish_reason: "length" };
  const whole = { ...choice, message: { content: null, reasoning_content: "a" }, logprobs: { content: [] } };
  const streamed = { ...choice, message: { reasoning_content: "a" }, logprobs: null };
  assertEquals(bare(200, { choices: [streamed] }), bare(200, { choices: [whole] }));
});
