import type { Plan, PlanOp, TensorId } from "./plan.ts";

/** The layer that each op belongs to, in a model whose layers all have attention; undefined for what comes before and after all layers. */
export function layersOf(plan: Plan): (number | undefined)[] {
  let before: number | undefined;
  return plan.ops.map((op) => before = op.op === "quantize" ? before : layerOf(plan, op));
}

/** By its heads, or by its tensor's name. */
function layerOf(plan: Plan, op: PlanOp): number | undefined {
  if (op.op === "rope_append" || op.op === "attention") return op.heads.layer;
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

/** The same model with its first layers only: cheap to load, of the same shapes, answers nonsense. All have attention. */
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
        case "rope_table":
        case "attention":
        case "quantize":
          return op;
        case "short_conv":
        case "delta_rule":
          throw new Error("A model with recurrent layers has no cheap beginning: its layers are not alike");
      }
    }),
    kv: { ...plan.kv, layers: Math.min(count, plan.kv.layers) },
  };
}
