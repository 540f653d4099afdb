/** Every decoder that has no tests of its own for it: company, cuts, cached prefixes and preemption change no bit. */
import { assert, assertEquals } from "@std/assert";
import { bits, LIMITS, mixedModel, PROMPT } from "./determinism.ts";
import { answersOf } from "./engine_crowd.ts";
import { instructionSets, KernelModel } from "./kernel_model.ts";
import { DECODERS } from "./parity_cases.ts";
import { onKernels } from "./preemption_campaign.ts";

const [isa] = instructionSets();
/** Requests until memory was short often enough: where most layers have a window, it takes more of them. */
const REQUESTS: { readonly [architecture: string]: number } = {
  gemma2: 90,
  gemma3n: 90,
  gemma4_moe: 90,
  "gpt-oss": 90,
  olmo3: 90,
  mellum: 90,
  "exaone4-windows": 90,
  afmoe: 90,
  cohere2moe: 90,
  "cohere2moe-shared": 90,
  granite_swa: 90,
  granite_swa_moe: 90,
};

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

  Deno.test(`${architecture}: preempted requests are answered as alone, to the bit`, async () => {
    const preemptions = await onKernels(architecture, "f16", {
      requests: REQUESTS[architecture] ?? 60,
      company: 24,
      seed: 1,
    });
    assert(preemptions > 3, `only ${preemptions} preemptions`);
  });
}
