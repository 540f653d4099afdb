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

/** The layer that each op belongs to; undefined for what comes before and after all layers. */
export function layersOf(plan: Plan): (number | undefined)[] {
  let before: number | undefined;
  return plan.ops.map((op) => before = layerOf(plan, op, before));
}

/** By its first tensor's name; an op without tensors belongs where the one before it does. */
function layerOf(plan: Plan, op: PlanOp, before: number | undefined): number | undefined {
  const [use] = tensorsOf(op);
  if (use === undefined) return before;
  const found = /^blk\.(\d+)\./.exec(plan.tensors[use.tensor].info.name);
  return found ? Number(found[1]) : undefined;
}

/** Layers that are alike. */
export interface LayerKind {
  /** What mixes their tokens, their experts, and whether they draft; "feed-forward" where nothing mixes tokens. */
  readonly kind: string;
  readonly count: number;
}

/** What kinds of layers there are, in the order of the first of each. */
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

/** The same model with its first layers only: cheap to load, of the same shapes, answers nonsense. */
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

/** How many layers there must be for all of these to be among them. */
function countOf(layers: readonly number[]): number {
  return layers.reduce((count, layer) => Math.max(count, layer + 1), 0);
}
