import { GgufError, quote } from "../../gguf/errors.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { columns } from "../../plan/ops/columns.ts";

/**
 * Copies a layer's input rows if the plan's drafter reads them. A decoder calls it before each layer, and after the
 * last layer with the number of layers. Other decoders cannot use a drafter in its own file.
 */
export function handOut(b: PlanBuilder, x: Value, layer: number): void {
  if (b.drafter?.layers.includes(layer)) {
    b.handedOut.set(layer, columns(b, x, { first: 0, columns: x.columns }));
  }
}

/** Returns the rows that `handOut` copied. Throws GgufError if the decoder does not call `handOut`. */
export function handedOut({ file, handedOut }: PlanBuilder, layer: number): Value {
  const rows = handedOut.get(layer);
  if (rows) return rows;
  const architecture = quote(file.metadata.getString("general.architecture"));
  const detail = `architecture ${architecture} hands out no rows for a drafter`;
  throw new GgufError("GGUF_HPARAM", detail, { field: 'key "general.architecture"' });
}
