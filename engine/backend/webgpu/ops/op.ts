import type { OpName, PlanOp } from "../../../plan/ops/registry.ts";
import type { Dispatch } from "../step/dispatch.ts";
import type { DispatchWriter } from "../step/dispatch_writer.ts";
import type { LoweredOp } from "../program.ts";
import type { ProgramBuilder } from "../program_builder.ts";

/** A plan's op of that name. */
export type PlanOpOf<Name extends OpName> = Extract<PlanOp, { op: Name }>;

/**
 * All that the GPU has of an op. `P` is the plan's op, `never` for one that only other ops are lowered to; `G` is what
 * stands in the program, `never` for an op that moves nothing or that another takes along.
 */
export interface GpuKind<P extends PlanOp, G extends LoweredOp> {
  readonly op: string;
  /** Puts the op, its matrices, vectors and buffers into the program. Throws where the GPU cannot run it. */
  lower?(op: P, to: ProgramBuilder): void;
  /** Its dispatches with all their buffers, in order. */
  dispatches?(op: G, writer: DispatchWriter): Promise<Dispatch[]>;
  /** Dispatches of a decoded token; by default 1. */
  readonly count?: number;
}

/** What an op is called in profiles and errors. */
export function label(op: LoweredOp): string {
  return `${op.layer ?? "-"} ${op.op}`;
}

/** The bits of an f32. */
export function float(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0];
}
