/** Answers with drafts must be bit-identical to those without. The campaign is `deno task speculate`. */
import { assert } from "@std/assert";
import { KV_TYPES } from "../../engine/mod.ts";
import { comparedOn, KERNEL_MODELS, STAND_INS } from "./speculation_scenario.ts";

for (const standIn of STAND_INS) {
  Deno.test(`speculation: ${standIn.name} gives the same answers with and without drafts`, async () => {
    const { accepted, drafted } = await comparedOn(standIn, { requests: 12, seed: 5 });
    assert(accepted > 20 && accepted < drafted, `${accepted} of ${drafted}`);
  });
}

for (const [i, model] of KERNEL_MODELS.entries()) {
  const kvType = KV_TYPES[i % KV_TYPES.length];
  Deno.test(`speculation: ${model.name} with the kernels gives the same answers with and without drafts`, async () => {
    const { accepted, drafted } = await comparedOn({ ...model, kvType }, {
      requests: model.architecture === "qwen35" ? 6 : 8,
      seed: 6,
    });
    assert(accepted > 20 && accepted < drafted, `${accepted} of ${drafted}`);
  });
}
