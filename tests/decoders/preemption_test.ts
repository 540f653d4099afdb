/** Every decoder that has no test of its own for it, where KV memory runs out: preemption changes no bit. */
import { assert } from "@std/assert";
import { onKernels } from "../preemption_campaign.ts";
import { isFullTier } from "../tier.ts";
import { kindsOfTier } from "./kinds.ts";

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
  cohere2: 90,
  cohere2moe: 90,
  "cohere2moe-shared": 90,
  granite_swa: 90,
  granite_swa_moe: 90,
};

for (const { architecture } of await kindsOfTier()) {
  Deno.test(`${architecture}: preempted requests are answered as alone, to the bit`, async () => {
    const preemptions = await onKernels(architecture, "f16", {
      requests: isFullTier ? REQUESTS[architecture] ?? 60 : 30,
      company: 24,
      seed: 1,
    });
    assert(preemptions > 3, `only ${preemptions} preemptions`);
  });
}
