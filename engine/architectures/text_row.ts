import type { PlanBuilder, Value } from "../plan/builder.ts";
import { linear } from "../plan/ops/matmul.ts";

/**
 * A product of the one row that a text has become, in two planes: little comes behind it that would even out what rounding takes, and
 * one row costs nothing beside its text.
 */
export function textRow(b: PlanBuilder, row: Value, name: string, rows: number): Value {
  return linear(b, row, [{ name, rows, fine: rows }])[0];
}
