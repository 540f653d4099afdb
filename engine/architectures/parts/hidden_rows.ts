import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { columns } from "../../plan/ops/columns.ts";

/**
 * Copies the rows that a layer reads if the plan's drafter wants them. Decoders call it before each layer, and after the
 * last one with the number of layers. Only these decoders can have a drafter of another file.
 */
export function handOut(b: PlanBuilder, x: Value, layer: number): void {
  if (b.drafter?.layers.includes(layer)) {
    b.handedOut.set(layer, columns(b, x, { first: 0, columns: x.columns }));
  }
}
