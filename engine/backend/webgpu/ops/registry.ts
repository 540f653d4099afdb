/** The ops that the GPU has. A new op is one file and one line in this list. */
import type { PlanOp } from "../../../plan/ops/registry.ts";
import type { LoweredOp } from "../program.ts";
import type { Dispatch } from "../step/dispatch.ts";
import type { DispatchWriter } from "../step/dispatch_writer.ts";
import { ATTENTION } from "./attention/attention.ts";
import { CANDIDATES } from "./logits/candidates.ts";
import { DELTA_RULE } from "./delta_rule.ts";
import { EMBED } from "./embed.ts";
import { GLU, SILU_MULTIPLY } from "./glu.ts";
import { MATMUL } from "./matmul.ts";
import type { GpuKind } from "./op.ts";
import { RMS_NORM } from "./rms_norm.ts";
import { ROPE_APPEND } from "./rope_append.ts";
import { QUANTIZE, ROPE_TABLE, SHORT_CONV } from "./without_dispatch.ts";

const KINDS = [
  EMBED,
  ROPE_TABLE,
  RMS_NORM,
  MATMUL,
  GLU,
  SILU_MULTIPLY,
  ROPE_APPEND,
  ATTENTION,
  QUANTIZE,
  CANDIDATES,
  SHORT_CONV,
  DELTA_RULE,
];

const BY_NAME = new Map(KINDS.map((kind) => [kind.op, kind as GpuKind<PlanOp, LoweredOp>]));

/** Returns how the GPU handles an op; undefined if the GPU has no kernel for it. */
export function gpuKindOf({ op }: { readonly op: string }): GpuKind<PlanOp, LoweredOp> | undefined {
  return BY_NAME.get(op);
}

/** Returns the dispatches of the program's ops in order, without those that choose tokens (`logits/candidates.ts`). */
export async function modelDispatches(writer: DispatchWriter): Promise<Dispatch[]> {
  const dispatches: Dispatch[] = [];
  for (const op of writer.context.program.ops) {
    dispatches.push(...await gpuKindOf(op)!.dispatches?.(op, writer) ?? []);
  }
  return dispatches;
}
