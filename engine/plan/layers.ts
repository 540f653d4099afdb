import type { Plan, PlanOp, TensorId } from "./plan.ts";

/** The layer that each op belongs to; undefined for what comes before and after all layers. */
export function layersOf(plan: Plan): (number | undefined)[] {
  let before: number | undefined;
  return plan.ops.map((op) => before = NAMELESS.has(op.op) ? before : layerOf(plan, op));
}

/** Ops that need not have a tensor, and belong where the op before them does. */
const NAMELESS: ReadonlySet<PlanOp["op"]> = new Set(["rope_append", "attention", "quantize"]);

/** By its tensor's name. */
function layerOf(plan: Plan, op: PlanOp): number | undefined {
  const [tensor] = tensorsOf(op);
  const found = tensor === undefined ? null : /^blk\.(\d+)\./.exec(plan.tensors[tensor].info.name);
  return found ? Number(found[1]) : undefined;
}

/** Every tensor that an op reads. */
function tensorsOf(op: PlanOp): TensorId[] {
  switch (op.op) {
    case "embed":
    case "rms_norm":
      return [op.weight];
    case "matmul":
      return op.parts.flatMap(({ weight, bias }) => bias === undefined ? [weight] : [weight, bias]);
    case "swiglu":
      return [op.gate, op.up];
    case "rope_append":
      return [op.qNorm, op.kNorm].filter((id) => id !== undefined);
    case "short_conv":
      return [op.weight];
    case "delta_rule":
      return [op.decay, op.bias, op.norm];
    case "candidates":
      return op.exact ? [op.exact.weight] : [];
    case "rope_table":
    case "attention":
    case "quantize":
      return [];
  }
}

/** The same model with its first layers only: cheap to load, of the same shapes, answers nonsense. */
export function firstLayers(plan: Plan, count: number): Plan {
  const layers = layersOf(plan);
  const ops = plan.ops.filter((_, i) => layers[i] === undefined || layers[i] < count);
  const used = [...new Set(ops.flatMap(tensorsOf))];
  const ids = new Map(used.map((id, i) => [id, i]));
  const id = (old: TensorId) => ids.get(old)!;
  const maybe = (old?: TensorId) => old === undefined ? undefined : id(old);
  return {
    ...plan,
    tensors: used.map((old) => plan.tensors[old]),
    ops: ops.map((op): PlanOp => {
      switch (op.op) {
        case "embed":
        case "rms_norm":
          return { ...op, weight: id(op.weight) };
        case "matmul":
          return { ...op, parts: op.parts.map((p) => ({ ...p, weight: id(p.weight), bias: maybe(p.bias) })) };
        case "swiglu":
          return { ...op, gate: id(op.gate), up: id(op.up) };
        case "rope_append":
          return { ...op, qNorm: maybe(op.qNorm), kNorm: maybe(op.kNorm) };
        case "candidates":
          return { ...op, exact: op.exact && { ...op.exact, weight: id(op.exact.weight) } };
        case "short_conv":
          return { ...op, weight: id(op.weight) };
        case "delta_rule":
          return { ...op, decay: id(op.decay), bias: id(op.bias), norm: id(op.norm) };
        case "rope_table":
        case "attention":
        case "quantize":
          return op;
      }
    }),
    kv: { ...plan.kv, layers: ops.filter(({ op }) => op === "attention").length },
    recurrent: { ...plan.recurrent, layers: ops.filter(({ op }) => op === "delta_rule").length },
  };
}
