import { assert } from "@std/assert";
import { KERNEL_MODELS, onKernels, onStandIn, STAND_INS } from "./preemption_campaign.ts";

/* `deno task preemption` asks thousands. */

for (const [name, stateSlots, kind] of STAND_INS) {
  Deno.test(`${name}: where KV memory runs out all the time, each request is answered as alone`, async () => {
    const preemptions = await onStandIn(stateSlots, kind, { requests: 150, company: 24, seed: 1 });
    assert(preemptions > 40, `only ${preemptions} preemptions`);
  });
}

for (const architecture of KERNEL_MODELS) {
  Deno.test(`${architecture} with the kernels: preempted requests are answered as alone, to the bit`, async () => {
    const preemptions = await onKernels(architecture, "f16", { requests: 60, company: 24, seed: 1 });
    assert(preemptions > 10, `only ${preemptions} preemptions`);
  });
}
