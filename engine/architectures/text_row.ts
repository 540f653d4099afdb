import type { PlanBuilder, Value } from "../plan/builder.ts";
import { linear } from "../plan/ops/matmul.ts";

/**
 * Multiplies a text's single row by a matrix, in two 8-bit planes. Few later ops could average out rounding errors, and
 * one row costs little.
 */
export function textRow(b: PlanBuilder, row: Value, name: string, rows: number): Value {
  return linear(b, row, [{ name, rows, fine: rows }])[0];
}
