import { assert } from "@std/assert";
import { BLOCK_FORMATS, DECODERS } from "../parity_cases.ts";
import { compare, describeDistances, type Judged } from "../parity_judge.ts";
import { everyNth, fullTier, isFullTier } from "../../../testing/tier.ts";
import { judgeFormat } from "./judge.ts";
import { decodersOfTier } from "./kinds.ts";

function assertNoFurtherThanLlamaCpp(format: string, judged: readonly Judged[]): void {
  const distances = compare(judged);
  assert(distances.ours.mean <= distances.llamaCpp.mean, describeDistances(format, distances));
}

for (const architecture of DECODERS) {
  fullTier.test(`${architecture}: in quantized formats at least as near to the exact answer as llama.cpp`, async () => {
    for (const format of BLOCK_FORMATS) {
      assertNoFurtherThanLlamaCpp(format, await judgeFormat(architecture, format));
    }
  });
}

// For one seed of one architecture the result is chance, so all are compared together.
const [FORMAT] = BLOCK_FORMATS;
Deno.test({
  name: `decoders in ${FORMAT}: together no further off than llama.cpp`,
  ignore: isFullTier,
  fn: async () => {
    const judged: Judged[] = [];
    for (const { architecture } of everyNth(2, await decodersOfTier())) {
      judged.push(...await judgeFormat(architecture, FORMAT));
    }
    assertNoFurtherThanLlamaCpp(FORMAT, judged);
  },
});
