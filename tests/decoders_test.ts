/** Every decoder that has no tests of its own for it: company, cuts and cached prefixes change no bit. */
import { assertEquals } from "@std/assert";
import { bits, LIMITS, mixedModel, PROMPT } from "./determinism.ts";
import { answersOf } from "./engine_crowd.ts";
import { instructionSets, KernelModel } from "./kernel_model.ts";
import { DECODERS } from "./parity_cases.ts";

const [isa] = instructionSets();

for (const architecture of DECODERS) {
  Deno.test(`${architecture}: cuts and company change no bit of the logits`, async () => {
    const bytes = mixedModel(architecture, ["Q8_0", "F16", "Q4_K"]);
    using one = await KernelModel.load(bytes, LIMITS, { threads: 1 });
    using several = await KernelModel.load(bytes, LIMITS, { threads: 3 });
    const whole = await bits(one, { chunk: PROMPT });
    assertEquals(await bits(one, { chunk: 1 }), whole);
    assertEquals(await bits(one, { chunk: 27, others: 7, range: 4 }), whole);
    assertEquals(await bits(several, { chunk: 64, others: 7, range: 2 }), whole);
  });

  Deno.test(`${architecture}: alone, in a crowd, with a cached prefix: the same answers to the bit`, async () => {
    const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
    try {
      await Deno.writeFile(model, mixedModel(architecture, ["Q8_0"]));
      await answersOf(model, { isa, threads: 2 });
    } finally {
      await Deno.remove(model);
    }
  });
}
