import { assertEquals } from "@std/assert";
import { buildPlan } from "../architectures/registry.ts";
import { layerKinds } from "./layers.ts";
import { smallModel } from "./testing.ts";

Deno.test("layers: counts layers by token mixer and experts", () => {
  const kinds = (model: Parameters<typeof smallModel>[0]) =>
    layerKinds(buildPlan(smallModel(model))).map(({ kind, count }) => `${count} of ${kind}`);
  assertEquals(kinds({ architecture: "llama", type: "Q8_0" }), ["2 of attention"]);
  assertEquals(kinds({ architecture: "qwen35", type: "Q8_0" }), ["3 of Gated DeltaNet", "1 of attention"]);
  assertEquals(kinds({ architecture: "lfm2", type: "F16" }), ["2 of short convolution", "1 of attention"]);
  assertEquals(kinds({ architecture: "nemotron_h", type: "Q8_0" }), [
    "1 of Mamba2",
    "1 of attention",
    "1 of feed-forward",
  ]);
  assertEquals(kinds({ architecture: "lfm2moe", type: "Q8_0" }), [
    "1 of short convolution",
    "1 of short convolution, 2 of 6 experts",
    "1 of attention, 2 of 6 experts",
  ]);
});
