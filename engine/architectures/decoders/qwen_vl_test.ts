/** Vision models: texts need only their decoder. */
import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../../gguf/errors.ts";
import { MetadataMap } from "../../gguf/metadata.ts";
import type { GgufFile, MetadataValue } from "../../gguf/types.ts";
import { graphOf, smallTransformer } from "../../plan/testing.ts";
import { buildPlan } from "../registry.ts";

const DECODERS = {
  qwen2vl: smallTransformer({ architecture: "qwen2", type: "Q8_0", biases: true }),
  qwen3vl: smallTransformer({ architecture: "qwen3", type: "Q8_0", headNorms: true }),
  qwen3vlmoe: smallTransformer({ architecture: "qwen3moe", type: "Q8_0", headNorms: true }),
};

/** Turns the decoder's file into a vision model's, with these rotary sections. */
function seeing(name: keyof typeof DECODERS, sections: readonly number[]): GgufFile {
  const file = DECODERS[name];
  const entries = Array.from(
    file.metadata.entries,
    ([key, value]) => [key.replace(/^qwen\w+/, name), value] as const,
  );
  const changed = new Map<string, MetadataValue>(entries)
    .set("general.architecture", name)
    .set(`${name}.rope.dimension_sections`, Int32Array.from(sections))
    .set(`${name}.n_deepstack_layers`, 3);
  return { ...file, metadata: new MetadataMap(changed) };
}

for (const name of ["qwen2vl", "qwen3vl", "qwen3vlmoe"] as const) {
  Deno.test(`${name}: computes texts as its decoder does`, () => {
    const plan = buildPlan(seeing(name, [6, 5, 5, 0]));
    assertEquals(plan.architecture, name);
    assertEquals(graphOf(plan), graphOf(buildPlan(DECODERS[name])));
  });

  Deno.test(`${name}: refuses a fourth rotary section`, () => {
    const error = assertThrows(() => buildPlan(seeing(name, [6, 5, 4, 1])), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "${name}.rope.dimension_sections"`]);
  });
}
