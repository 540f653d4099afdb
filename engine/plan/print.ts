import { type Forms, formsOf, type Plan, type PlanOp } from "./plan.ts";

/**
 * A plan as text, an op a line: `out = op(operands)`. The text names everything that the plan computes, so a change
 * that leaves it alone changed no graph.
 */
export function printPlan(plan: Plan): string {
  const { kv, recurrent } = plan;
  const head = [
    `plan ${plan.architecture}: ${plan.ops.length} ops, ${plan.buffers.length} buffers, ${plan.tensors.length} tensors`,
    `vocab ${plan.vocabSize}, context ${plan.contextLength}, kv ${kv.layers} x ${kv.heads} x ${kv.headDim} in ${kv.type}, ` +
    `${plan.frequencies.length} frequencies` +
    (recurrent.layers > 0
      ? `, states ${recurrent.layers} x ${recurrent.valueHeads} x ${recurrent.headDim}^2`
      : ""),
  ];
  return [...head, ...plan.ops.map((op) => printOp(plan, op))].join("\n") + "\n";
}

function printOp(plan: Plan, op: PlanOp): string {
  const buffer = (id: number) => {
    const b = plan.buffers[id];
    return `${b.name}[${b.rows},${b.columns}]`;
  };
  const forms = (f: Forms) => formsOf(f).map(buffer).join(" ");
  const tensor = (id: number) => {
    const t = plan.tensors[id];
    const shape = t.kind === "matrix" ? `${t.rows}x${t.columns}` : `${t.columns}`;
    return `${t.info.name}:${t.info.type}:${shape}`;
  };
  switch (op.op) {
    case "embed":
      return `${buffer(op.out)} = embed(${tensor(op.weight)})`;
    case "rope_table":
      return `${buffer(op.out)} = rope_table()`;
    case "rms_norm":
      return `${forms(op.out)} = rms_norm(${buffer(op.x)}, ${tensor(op.weight)}, eps ${op.eps})`;
    case "matmul":
      return op.parts.map((p) => {
        const bias = p.bias === undefined ? "" : ` + ${tensor(p.bias)}`;
        return `${buffer(p.out)} ${p.add ? "+=" : "="} ${tensor(p.weight)}${bias}`;
      }).join("; ") + ` of ${forms(op.x)}`;
    case "swiglu":
      return `${forms(op.out)} = swiglu(${tensor(op.gate)}, ${tensor(op.up)}) of ${forms(op.x)}`;
    case "rope_append": {
      const norms = [op.qNorm, op.kNorm].filter((id) => id !== undefined).map(tensor);
      const { layer, heads, kvHeads, headDim } = op.heads;
      const what = `layer ${layer}, ${heads}/${kvHeads} heads of ${headDim}, rotated ${op.rotated}` +
        (op.interleaved ? " interleaved" : "") + (op.heads.gated ? ", gated" : "");
      return `rope_append(${[op.q, op.k, op.v, op.table].map(buffer).concat(norms).join(", ")}; ${what})`;
    }
    case "attention":
      return `${buffer(op.out)} = attention(${buffer(op.q)}; layer ${op.heads.layer}, scale ${op.scale})`;
    case "short_conv": {
      const { layer, keyHeads, valueHeads, headDim } = op.heads;
      const what = `state ${layer}, ${keyHeads}+${keyHeads}+${valueHeads} heads of ${headDim}, eps ${op.eps}`;
      return `short_conv(${buffer(op.x)}, ${tensor(op.weight)}; ${what})`;
    }
    case "delta_rule": {
      const operands = [op.qkv, op.gate, op.alpha, op.beta].map(buffer);
      const tensors = [op.decay, op.bias, op.norm].map(tensor);
      const what = `state ${op.heads.layer}, eps ${op.eps}`;
      return `${forms(op.out)} = delta_rule(${[...operands, ...tensors].join(", ")}; ${what})`;
    }
    case "quantize":
      return `${buffer(op.out)} = quantize(${buffer(op.x)})`;
    case "candidates":
      return op.exact
        ? `candidates(${buffer(op.logits)}; exact ${tensor(op.exact.weight)} of ${buffer(op.exact.x)})`
        : `candidates(${buffer(op.logits)})`;
  }
}
