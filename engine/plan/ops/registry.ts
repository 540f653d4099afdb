/** All ops. To add one, write a file beside this one and add a line to this list. */
import type { OpKind, OpOf } from "../op.ts";
import {
  buffersOfAll,
  type BufferUse,
  choiceOfAll,
  encodeAll,
  layersOfAll,
  renumberAll,
  tensorsOfAll,
  type TensorUse,
} from "../operands.ts";
import type { Choice, PlanBuffer, TensorId } from "../values.ts";
import type { WordWriter } from "../words.ts";
import { ACTIVATED } from "./activated.ts";
import { ADAPTERS, LOW_RANK } from "./adapters.ts";
import { ALTUP_CORRECT, ALTUP_PREDICT } from "./altup.ts";
import { ATTENTION } from "./attention.ts";
import { CANDIDATES } from "./candidates.ts";
import { CHOOSE } from "./choose.ts";
import { CLAMP } from "./clamp.ts";
import { COLUMNS } from "./columns.ts";
import { DELTA_RULE } from "./delta_rule.ts";
import { EMBED } from "./embed.ts";
import { EMBED_POSITIONS } from "./embed_positions.ts";
import { EXPERT_ACTIVATED } from "./expert_activated.ts";
import { EXPERT_GLU } from "./expert_glu.ts";
import { EXPERT_SUM } from "./expert_sum.ts";
import { GATE } from "./gate.ts";
import { GATED_CONV } from "./gated_conv.ts";
import { GIVEN } from "./given.ts";
import { GLU } from "./glu.ts";
import { GROUPED_NORM } from "./grouped_norm.ts";
import { HEAD_COLUMNS } from "./head_columns.ts";
import { HEAD_MATMUL } from "./head_matmul.ts";
import { JOIN } from "./join.ts";
import { KDA } from "./kda.ts";
import { KEEP } from "./keep.ts";
import { LAYER_NORM } from "./layer_norm.ts";
import { MAMBA2 } from "./mamba2.ts";
import { MATCH_RMS } from "./match_rms.ts";
import { MATMUL } from "./matmul.ts";
import { MERGE } from "./merge.ts";
import { POOL } from "./pool.ts";
import { POST_NORM } from "./post_norm.ts";
import { QUANTIZE } from "./quantize.ts";
import { RECALL } from "./recall.ts";
import { RETURN_POOLED } from "./return_pooled.ts";
import { RMS_NORM } from "./rms_norm.ts";
import { ROPE_APPEND } from "./rope_append.ts";
import { ROPE_TABLE } from "./rope_table.ts";
import { ROTATE } from "./rotate.ts";
import { ROUTE } from "./route.ts";
import { SHIFT } from "./shift.ts";
import { SHORT_CONV } from "./short_conv.ts";
import { SPARSE_GATE } from "./sparse_gate.ts";
import { TALLY } from "./tally.ts";
import { TEXT_ATTENTION } from "./text_attention.ts";

/** Kinds of ops in the order of their codes. */
export const KINDS = [
  EMBED,
  ROPE_TABLE,
  RMS_NORM,
  MATMUL,
  GLU,
  ROPE_APPEND,
  ATTENTION,
  QUANTIZE,
  CANDIDATES,
  SHORT_CONV,
  DELTA_RULE,
  POOL,
  ROUTE,
  EXPERT_GLU,
  EXPERT_SUM,
  RETURN_POOLED,
  ACTIVATED,
  POST_NORM,
  GATE,
  LAYER_NORM,
  EMBED_POSITIONS,
  ROTATE,
  TEXT_ATTENTION,
  MAMBA2,
  GROUPED_NORM,
  GATED_CONV,
  SHIFT,
  JOIN,
  RECALL,
  KEEP,
  EXPERT_ACTIVATED,
  COLUMNS,
  ALTUP_PREDICT,
  ALTUP_CORRECT,
  MATCH_RMS,
  SPARSE_GATE,
  HEAD_MATMUL,
  ADAPTERS,
  LOW_RANK,
  GIVEN,
  MERGE,
  TALLY,
  HEAD_COLUMNS,
  KDA,
  CHOOSE,
  CLAMP,
] as const;

/** One op of a plan. */
export type PlanOp = OpOf<typeof KINDS[number]>;
export type OpName = PlanOp["op"];

const BY_NAME = new Map<string, OpKind>(KINDS.map((kind) => [kind.op, kind as OpKind]));

export function kindOf({ op }: PlanOp): OpKind {
  return BY_NAME.get(op)!;
}

/** Returns every buffer that an op reads or writes. */
export function buffersOf(op: PlanOp): BufferUse[] {
  return buffersOfAll(kindOf(op).operands, op);
}

/** Returns whether an op computes only one row per pooled sequence. */
export function isPooling({ buffers }: { readonly buffers: readonly PlanBuffer[] }, op: PlanOp): boolean {
  return buffersOf(op).some(({ buffer }) => buffers[buffer].rows === "pools");
}

/** Returns the ops that run outside drafts. */
export function mainOps({ ops }: { readonly ops: readonly PlanOp[] }): readonly PlanOp[] {
  const draft = ops.findIndex(({ op }) => op === "recall");
  return draft < 0 ? ops : ops.slice(0, draft);
}

/** Returns whether the plan has a layer that drafts tokens. */
export function canDraft({ ops }: { readonly ops: readonly PlanOp[] }): boolean {
  return ops.some(({ op }) => op === "recall");
}

/** Whether the plan's only state is the row that its drafting layer carries to the next token. */
export function carriesRows({ ops }: { readonly ops: readonly PlanOp[] }): boolean {
  const carrying = ops.filter((op) => statesOf(op).length > 0);
  return carrying.length > 0 && carrying.every(({ op }) => op === "shift");
}

/** Returns every tensor that an op reads. */
export function tensorsOf(op: PlanOp): TensorUse[] {
  return tensorsOfAll(kindOf(op).operands, op);
}

/** Returns the KV cache layers that an op reads or writes. */
export function cachesOf(op: PlanOp): number[] {
  return layersOfAll("caches", kindOf(op).operands, op);
}

/** Returns the recurrent state layers that an op updates. */
export function statesOf(op: PlanOp): number[] {
  return layersOfAll("states", kindOf(op).operands, op);
}

/** Returns the matrices that an op multiplies by. */
export function productsOf(op: PlanOp): TensorId[] {
  return tensorsOf(op).filter(({ product }) => product).map(({ tensor }) => tensor);
}

/** Returns the number of experts that the op's rows choose; undefined for ops without experts. */
export function choiceOf(op: PlanOp): Choice | undefined {
  return choiceOfAll(kindOf(op).operands, op);
}

/** Returns the op with renumbered tensors. */
export function renumberTensors(op: PlanOp, id: (old: TensorId) => TensorId): PlanOp {
  return renumberAll(kindOf(op).operands, op, id);
}

/** Encodes an op: its code, then its operands. */
export function encodeOp(w: WordWriter, op: PlanOp): void {
  const { code, operands } = kindOf(op);
  encodeAll(w.u32(code), operands, op);
}
