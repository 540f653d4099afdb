import type { PlanBuilder, Value } from "../plan/builder.ts";
import { linear } from "../plan/ops/matmul.ts";

/**
 * Multiplies a text's single row by a matrix, in two planes. Few ops follow that could average out rounding
 * errors, and one row costs little beside its text.
 */
export function textRow(b: PlanBuilder, row: Value, name: string, rows: number): Value {
  return linear(b, row, [{ name, rows, fine: rows }])[0];
}
