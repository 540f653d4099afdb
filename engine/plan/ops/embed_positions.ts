import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, optional, weights } from "../operands.ts";

/**
 * Op: x += the embedding of the token's position and of the first token type. A text never has more tokens than the
 * embedding has positions.
 */
export const EMBED_POSITIONS = opKind({
  op: "embed_positions",
  code: 23,
  operands: { x: floats("update"), positions: optional(weights), types: optional(weights) },
  text: (op, t) => `${t.buffer(op.x)} += embed_positions(${t.tensors(op.positions, op.types)})`,
});

/** Names of the position and type embeddings, without `.weight`, and their row counts. */
export interface Learned {
  readonly positions?: { readonly name: string; readonly count: number };
  readonly types?: { readonly name: string; readonly count: number };
}

/** Adds learned positions, the first token type, or both to the token embeddings. */
export function embedPositions(b: PlanBuilder, x: Value, { positions, types }: Learned): void {
  if (!positions && !types) return;
  const matrix = (m: Learned["types"]) => m && b.matrix(`${m.name}.weight`, x.columns, m.count);
  b.push(EMBED_POSITIONS, { x: b.asFloat(x), positions: matrix(positions), types: matrix(types) });
}
