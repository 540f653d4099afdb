import { assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../architectures/registry.ts";
import { checkBuffers } from "./check.ts";
import { KINDS } from "./ops/registry.ts";
import type { Plan, PlanOp } from "./plan.ts";
import { smallModel } from "./testing.ts";

const plan = buildPlan(smallModel({ architecture: "qwen35", type: "Q8_0" }));

/** Returns the plan with one op changed. */
function changed(at: number, change: Partial<PlanOp>): Plan {
  return { ...plan, ops: plan.ops.map((op, i) => i === at ? { ...op, ...change } as PlanOp : op) };
}

Deno.test("check: names an op that reads a buffer of the wrong form or an unwritten buffer", () => {
  const quantize = plan.ops.findIndex(({ op }) => op === "quantize");
  const op = plan.ops[quantize];
  if (op.op !== "quantize") throw new Error("no quantize");
  assertThrows(
    () => checkBuffers(changed(quantize, { x: op.out.quant })),
    TypeError,
    `Op ${quantize} of the plan, quantize: buffer ${
      plan.buffers[op.out.quant!].name
    } must be of the form "float" (got "quant")`,
  );
  const last = plan.buffers.findLastIndex(({ form }) => form === "float");
  assertThrows(
    () => checkBuffers(changed(quantize, { x: last })),
    TypeError,
    `Op ${quantize} of the plan, quantize: buffer ${plan.buffers[last].name} is read before it is written`,
  );
  checkBuffers(plan);
});

Deno.test("ops: codes and names match the kernels' modules", async () => {
  const source = await Deno.readTextFile(new URL("../../rust-kernels/src/ops/mod.rs", import.meta.url));
  const modules = [...source.matchAll(/^\s+(\d+) => (\w+)::/gm)].map((
    [, code, name],
  ) => [Number(code), name]);
  assertEquals(modules, KINDS.map(({ code, op }) => [code, op]));
});
