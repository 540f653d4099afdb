import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import ggml from "./ggml_types.json" with { type: "json" };
import { FORMATS } from "./formats.ts";
import { parseGguf } from "./reader.ts";
import { layoutOfId, nameOfId } from "./tensor_types.ts";
import { GgufBuilder } from "./testing.ts";

Deno.test("tensor types: every id of ggml is supported with ggml's layout, or refused with a reason", () => {
  for (const { id, name, elements, bytes } of ggml.types) {
    const layout = layoutOfId(id);
    if (layout) {
      assertEquals({ ...layout, float: undefined }, { id, name, elements, bytes, float: undefined });
    } else {
      const problem = `ggml's type ${id} needs kernels, or a reason in OTHERS of tensor_types.ts`;
      assertMatch(nameOfId(id), new RegExp(`^${name}, .+`), problem);
    }
  }
});

Deno.test("tensor types: ggml has every supported id", () => {
  const known = ggml.types.map(({ id }) => id);
  assertEquals(Object.values(FORMATS).filter(({ id }) => !known.includes(id)), []);
});

Deno.test("tensor types: refuses a file with PrismML's Q2_0, whose blocks have 128 values, and names PrismML", () => {
  const file = new GgufBuilder()
    .tensor("token_embd.weight", "Q2_0", [128, 16], new Uint8Array(16 * 34))
    .tensor("output_norm.weight", "F32", [128]);
  assertThrows(() => parseGguf(file.build().bytes), Error, "PrismML");
});
