import { assertEquals, assertNotEquals } from "@std/assert";
import { PlanBuilder } from "./builder.ts";
import { linear } from "./ops/matmul.ts";
import { smallTransformer } from "./testing.ts";

Deno.test("builder: quantizes a value again after an op adds to it", () => {
  const b = new PlanBuilder(smallTransformer({ architecture: "llama", type: "Q8_0" }));
  const { shape: [columns, rows] } = b.file.tensors.get("blk.0.attn_output.weight")!;
  assertEquals(columns, rows);
  const x = b.floats("x", "step", columns);
  const name = "blk.0.attn_output";
  const [y] = linear(b, x, [{ name, rows }]);
  const before = x.forms.quant;
  linear(b, x, [{ name, rows }]);
  assertEquals(x.forms.quant, before);
  linear(b, y, [{ name, rows, addTo: x }]);
  linear(b, x, [{ name, rows }]);
  assertNotEquals(x.forms.quant, before);
});
