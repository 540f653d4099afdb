import { cannotRun } from "../../errors.ts";
import type { DispatchWriter } from "../../step/dispatch_writer.ts";
import type { Kernel } from "../../kernels/types.ts";
import type { LoweredOp, Slice } from "../../program.ts";
import type { Dispatch } from "../../step/dispatch.ts";
import { adjustKernel, candidatesKernel, partsKernel, partsOf, racesKernel } from "./candidate_kernels.ts";
import { drawKernel } from "./draw.ts";
import type { GpuKind, PlanOpOf } from "../op.ts";

interface CandidatesOp extends LoweredOp {
  readonly op: "candidates";
  readonly rows: "logits";
  readonly x: Slice;
}

/**
 * The candidates op has no fixed dispatches: `candidateDispatches` creates them, because request and answer buffers
 * grow.
 */
export const CANDIDATES: GpuKind<PlanOpOf<"candidates">, CandidatesOp> = {
  op: "candidates",
  lower(op, to) {
    if (op.scale !== 1 || op.softcap !== 0) throw cannotRun("its logits are scaled or capped");
    to.push<CandidatesOp>({ op: "candidates", rows: "logits", x: to.slice(op.logits) });
  },
  // The dispatches: parts of the vocabulary, candidates, races, and the draw.
  count: 4,
};

/** Buffers for the rows' logits requests and the answers. Larger ones replace them as needed. */
export interface AnswerBuffers {
  readonly wants: GPUBuffer;
  readonly answers: GPUBuffer;
}

/**
 * Dispatches in order. `adjust` serves rows with penalties, bias or a mask, `races` draws from all tokens, `draw` any
 * draw.
 */
export interface CandidateDispatches {
  readonly parts: Dispatch;
  readonly adjust: Dispatch;
  readonly races: Dispatch;
  readonly candidates: Dispatch;
  readonly draw: Dispatch;
}

/** Returns the dispatches that compute a step's candidates. */
export async function candidateDispatches(
  w: DispatchWriter,
  { wants, answers }: AnswerBuffers,
): Promise<CandidateDispatches> {
  const op = w.context.program.ops.find((op) => op.op === "candidates") as CandidatesOp;
  const { vocabSize } = w.context.plan;
  const { parts, chosen, rows } = w.context.buffers;
  const logits = w.buffer(op.x);
  const uniforms = await w.uniforms([vocabSize, w.stride(op.x), op.x.offset, partsOf(vocabSize)]);
  const make = (label: string, kernel: Kernel, buffers: GPUBuffer[]): Dispatch => {
    const bindings = [uniforms, ...buffers];
    return { label: `- ${label}`, rows: "logits", kernels: [kernel], n: vocabSize, bindings };
  };
  return {
    parts: make("logit_parts", partsKernel(), [logits, wants, parts, answers]),
    races: make("races", racesKernel(), [logits, wants, parts, chosen, rows]),
    adjust: make("adjust", adjustKernel(), [logits, wants, answers]),
    candidates: make("candidates", candidatesKernel(), [logits, wants, parts, answers]),
    draw: make("draw_tokens", drawKernel(), [logits, wants, parts, answers, chosen, rows]),
  };
}
