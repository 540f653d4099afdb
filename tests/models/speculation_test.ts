/** Answers with drafts are those without, to the bit: with the kernels, beside everything else; at length `deno task speculate`. */
import { assert } from "@std/assert";
import { KV_TYPES } from "../../engine/mod.ts";
import { comparedOn, KERNEL_MODELS, STAND_INS } from "./speculation_scenario.ts";

for (const standIn of STAND_INS) {
  Deno.test(`${standIn.name}: answers with drafts are those without`, async () => {
    const { accepted, drafted } = await comparedOn(standIn, { requests: 12, seed: 5 });
    assert(accepted > 20 && accepted < drafted, `${accepted} of ${drafted}`);
  });
}

for (const [i, model] of KERNEL_MODELS.entries()) {
  const kvType = KV_TYPES[i % KV_TYPES.length];
  Deno.test(`${model.name} with the kernels: answers with drafts are those without`, async () => {
    const { accepted, drafted } = await comparedOn({ ...model, kvType }, {
      requests: model.architecture === "qwen35" ? 6 : 8,
      seed: 6,
    });
    assert(accepted > 20 && accepted < drafted, `${accepted} of ${drafted}`);
  });
}
