import { cannotRun, GpuError, unsupportedOnGpu } from "./errors.ts";
import { layersOf } from "../../plan/layers.ts";
import { isPooling } from "../../plan/ops/registry.ts";
import type { Plan } from "../../plan/plan.ts";
import { isGpuType } from "./kernels/formats/registry.ts";
import { GPU_KV_TYPES } from "./ops/kv_cache.ts";
import { gpuKindOf } from "./ops/registry.ts";
import type { Program } from "./program.ts";
import { ProgramBuilder } from "./program_builder.ts";

/** Lowers a plan to a GPU program. Throws if the GPU has no kernel for an op, or for the type of the KV cache. */
export function lower(plan: Plan): Program {
  if (!GPU_KV_TYPES.includes(plan.kv.type)) {
    const allowed = GPU_KV_TYPES.flatMap((kvType) => [{ kvType }, ", "]);
    throw new GpuError([
      `Cannot store keys and values in ${plan.kv.type} on the GPU; use `,
      ...allowed,
      "or ",
      { backend: "cpu" },
    ]);
  }
  if (plan.tensors.some(({ experts }) => experts !== undefined)) {
    throw unsupportedOnGpu("Cannot run mixtures of experts on the GPU yet");
  }
  const foreign = plan.tensors.find(({ info }) => !isGpuType(info.type));
  if (foreign) {
    const { name, type } = foreign.info;
    throw unsupportedOnGpu(`Cannot compute with ${type} on the GPU yet (tensor "${name}")`);
  }
  const pooled = withoutPooling(plan);
  const builder = new ProgramBuilder(pooled);
  const layers = layersOf(pooled);
  for (const [i, op] of pooled.ops.entries()) {
    const kind = gpuKindOf(op);
    if (!kind?.lower) throw cannotRun(`it has no "${op.op}"`);
    builder.lowered(i, layers[i], () => kind.lower!(op, builder));
  }
  return builder.program;
}

/** Removes the pooling ops of a model that also computes logits. */
function withoutPooling(plan: Plan): Plan {
  const candidates = plan.ops.some(({ op }) => op === "candidates");
  return candidates ? { ...plan, ops: plan.ops.filter((op) => !isPooling(plan, op)) } : plan;
}
