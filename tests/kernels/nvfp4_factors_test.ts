/** Factors of NVFP4 tensors, one per matrix or expert: the model must equal the same values without factors. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { leftOutParts } from "../../engine/architectures/left_out.ts";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { changed } from "../../engine/gguf/testing_changes.ts";
import { bits, LIMITS, PROMPT } from "../models/determinism.ts";
import { instructionSets, KernelModel } from "../../testing/kernel_model.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

const model = (architecture: Architecture, factors: boolean) =>
  synthesize({ architecture, seed: 5, types: ["NVFP4", "Q8_0", "NVFP4"], vocabulary: 500, factors });

for (const architecture of ["qwen3", "gpt-oss", "qwen35moe", "phi3"] as const) {
  const tier = architecture === "qwen35moe" ? fullTier : firstTier;
  tier.test(`NVFP4: ${architecture} with factors is bit-identical to the same values without`, async () => {
    for (const isa of instructionSets()) {
      using plain = await KernelModel.load(model(architecture, false), LIMITS, { isa, threads: 2 });
      using with_ = await KernelModel.load(model(architecture, true), LIMITS, { isa, threads: 2 });
      assertEquals(await bits(with_, { chunk: 64 }), await bits(plain, { chunk: PROMPT }));
    }
  });
}

const FILE = parseGguf(model("qwen3moe", true));

Deno.test("NVFP4: factors of matrices are read; factors of activations are ignored and listed", () => {
  const parts = leftOutParts(FILE, buildPlan(FILE));
  assertEquals(parts.map(({ part }) => part), ["scales of activations"]);
});

Deno.test("NVFP4: refuses factors of another shape or type, and names the tensor or the type", () => {
  const scale = "blk.1.attn_q.scale";
  for (
    const [name, shape] of [[scale, [2]], ["blk.0.ffn_up_exps.scale", [1]], ["blk.1.strange.scale", [
      1,
    ]]] as const
  ) {
    const error = assertThrows(() => buildPlan(changed(FILE, { tensor: [name, shape] })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "${name}"`]);
  }
  const half = new Map(FILE.tensors).set(scale, { ...FILE.tensors.get(scale)!, type: "F16" });
  assertThrows(() => buildPlan({ ...FILE, tensors: half }), GgufError, "must be of type F32");
});

Deno.test("NVFP4: loading refuses a NaN scale", async () => {
  const bytes = model("qwen3", true);
  const { offset } = parseGguf(bytes).tensors.get("blk.1.attn_k.scale")!;
  new DataView(bytes.buffer).setFloat32(offset, NaN, true);
  await assertRejects(() => KernelModel.load(bytes, LIMITS), Error, "blk.1.attn_k");
});
