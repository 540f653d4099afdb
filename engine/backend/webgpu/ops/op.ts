import type { OpName, PlanOp } from "../../../plan/ops/registry.ts";
import type { Dispatch } from "../step/dispatch.ts";
import type { DispatchWriter } from "../step/dispatch_writer.ts";
import type { LoweredOp } from "../program.ts";
import type { ProgramBuilder } from "../program_builder.ts";

/** The plan's op with this name. */
export type PlanOpOf<Name extends OpName> = Extract<PlanOp, { op: Name }>;

/**
 * How the GPU handles an op. `P`: the plan's op; `never` if only other ops are lowered to it. `G`: the program's op;
 * `never` if the op moves no data or another op includes it.
 */
export interface GpuKind<P extends PlanOp, G extends LoweredOp> {
  readonly op: string;
  /** Adds the op with its matrices, vectors and buffers to the program. Throws if the GPU cannot run the op. */
  lower?(op: P, to: ProgramBuilder): void;
  /** Returns the op's dispatches with all their buffers, in order. */
  dispatches?(op: G, writer: DispatchWriter): Promise<Dispatch[]>;
  /** Number of the op's dispatches per decoded token; 1 by default. */
  readonly count?: number;
}

/** Returns the name of an op in profiles and errors. */
export function label(op: LoweredOp): string {
  return `${op.layer ?? "-"} ${op.op}`;
}

/** Returns the bits of a number as f32. */
export function float(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0];
}
