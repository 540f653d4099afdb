import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { columns } from "../../plan/ops/columns.ts";

/**
 * Copies a layer's input rows if the plan's drafter reads them. A decoder calls it before each layer, and after the last
 * layer with the number of layers. Decoders that do not call it cannot use a drafter from another file.
 */
export function handOut(b: PlanBuilder, x: Value, layer: number): void {
  if (b.drafter?.layers.includes(layer)) {
    b.handedOut.set(layer, columns(b, x, { first: 0, columns: x.columns }));
  }
}
