import { groupKvLayers } from "./kv_groups.ts";
import {
  cachesOf,
  choiceOf,
  kindOf,
  mainOps,
  type PlanOp,
  renumberTensors,
  statesOf,
  tensorsOf,
} from "./ops/registry.ts";
import type { Plan, TensorId } from "./plan.ts";

/** Returns the layer of each op; undefined for ops before and after all layers. */
export function layersOf(plan: Plan): (number | undefined)[] {
  let before: number | undefined;
  return plan.ops.map((op) => before = layerOf(plan, op, before));
}

/**
 * Returns an op's layer by the name of its first tensor. An op without tensors belongs to the layer of the op before
 * it.
 */
function layerOf(plan: Plan, op: PlanOp, before: number | undefined): number | undefined {
  const [use] = tensorsOf(op);
  if (use === undefined) return before;
  const found = /^blk\.(\d+)\./.exec(plan.tensors[use.tensor].info.name);
  return found ? Number(found[1]) : undefined;
}

/** Layers of the same kind. */
export interface LayerKind {
  /** The layers' way to mix tokens ("feed-forward" if none), and whether they have experts and draft. */
  readonly kind: string;
  readonly count: number;
}

/** Returns the kinds of layer, in order of first occurrence. */
export function layerKinds(plan: Plan): LayerKind[] {
  const parts: Set<string>[] = [];
  const layers = layersOf(plan);
  const drafting = new Set(layers.slice(mainOps(plan).length));
  for (const [i, op] of plan.ops.entries()) {
    const layer = layers[i];
    if (layer === undefined) continue;
    const found = parts[layer] ??= new Set();
    const mixer = kindOf(op).mixer?.(op);
    if (mixer !== undefined) found.add(mixer);
    const choice = choiceOf(op);
    if (choice) found.add(`${choice.used} of ${choice.count} experts`);
  }
  const counts = new Map<string, number>();
  for (const [layer, found] of parts.entries()) {
    if (!found) continue;
    if (drafting.has(layer)) found.add("drafts");
    const kind = found.size > 0 ? [...found].join(", ") : "feed-forward";
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return [...counts].map(([kind, count]) => ({ kind, count }));
}

/**
 * Returns the plan with its first `count` layers only. It has the same shapes and loads fast, but its output
 * has no meaning.
 */
export function firstLayers(plan: Plan, count: number): Plan {
  const layers = layersOf(plan);
  const ops = plan.ops.filter((_, i) => layers[i] === undefined || layers[i] < count);
  const used = [...new Set(ops.flatMap((op) => tensorsOf(op).map(({ tensor }) => tensor)))];
  const ids = new Map(used.map((id, i) => [id, i]));
  const id = (old: TensorId) => ids.get(old)!;
  return {
    ...plan,
    tensors: used.map((old) => plan.tensors[old]),
    ops: ops.map((op) => renumberTensors(op, id)),
    kv: { ...plan.kv, ...groupKvLayers(plan.kv.layers.slice(0, countOf(ops.flatMap(cachesOf))), ops) },
    states: plan.states.slice(0, countOf(ops.flatMap(statesOf))),
  };
}

/** Returns the number of leading layers that includes all the given ones. */
function countOf(layers: readonly number[]): number {
  return layers.reduce((count, layer) => Math.max(count, layer + 1), 0);
}
