/** qwen3next: files that are refused by tensor, beyond qwen35moe's. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../testing/synth/synth.ts";
import { buildPlan } from "../architectures/registry.ts";
import { GgufError } from "./errors.ts";
import { parseGguf } from "./reader.ts";
import { changed } from "./testing_changes.ts";

const FILE = parseGguf(synthesize({ architecture: "qwen3next", types: ["F32"], seed: 1, layers: 4 }));

const TENSORS: readonly (readonly [name: string, shape: number[] | undefined])[] = [
  ["ssm_ba.weight", undefined],
  ["ssm_ba.weight", [256, 8]],
  ["attn_qkv.weight", undefined],
  ["ffn_gate_inp_shexp.weight", undefined],
];

for (const [name, shape] of TENSORS) {
  const how = shape ? `of ${shape.join(" x ")}` : "missing";
  Deno.test(`qwen3next: refuses the tensor ${name} ${how}`, () => {
    const tensor = [`blk.0.${name}`, shape] as const;
    const error = assertThrows(() => buildPlan(changed(FILE, { tensor })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "blk.0.${name}"`]);
  });
}

Deno.test("qwen3next: refuses files of the first converters and says what to do", () => {
  let file = changed(FILE, { tensor: ["blk.0.attn_qkv.weight", undefined] });
  file = changed(file, { tensor: ["blk.0.ssm_in.weight", [256, 1024]] });
  const error = assertThrows(() => buildPlan(file), GgufError);
  assertEquals(error.field, 'tensor "blk.0.ssm_in.weight"');
  assert(error.message.includes("download a newer file"), error.message);
});
