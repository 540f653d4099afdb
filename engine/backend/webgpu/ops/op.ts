import type { OpName, PlanOp } from "../../../plan/ops/registry.ts";
import type { Dispatch } from "../step/dispatch.ts";
import type { DispatchWriter } from "../step/dispatch_writer.ts";
import type { LoweredOp } from "../program.ts";
import type { ProgramBuilder } from "../program_builder.ts";

/** The plan's op of that name. */
export type PlanOpOf<Name extends OpName> = Extract<PlanOp, { op: Name }>;

/**
 * How the GPU handles an op. `P` is the plan's op, `never` for an op that only other ops are lowered to. `G`
 * is the op in the program, `never` for an op that moves no data or that another op includes.
 */
export interface GpuKind<P extends PlanOp, G extends LoweredOp> {
  readonly op: string;
  /**
   * Adds the op with its matrices, vectors and buffers to the program. Throws where the GPU cannot run it.
   */
  lower?(op: P, to: ProgramBuilder): void;
  /** Returns its dispatches with all their buffers, in order. */
  dispatches?(op: G, writer: DispatchWriter): Promise<Dispatch[]>;
  /** Dispatches per decoded token; 1 by default. */
  readonly count?: number;
}

/** Returns the name of an op in profiles and errors. */
export function label(op: LoweredOp): string {
  return `${op.layer ?? "-"} ${op.op}`;
}

/** Returns the bits of an f32. */
export function float(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0];
}
