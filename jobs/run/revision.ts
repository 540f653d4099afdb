import type { Asked } from "../asked.ts";

/** Options that a retry changes. They affect only failed lines: good answers are never requested again. */
export interface Revision {
  /** The changed options, as in `Asked`. */
  readonly asked: Asked;
  readonly revise: (body: Record<string, unknown>) => Record<string, unknown>;
}

export const AS_BEFORE: Revision = { asked: {}, revise: (body) => body };

/** Returns the line with the revised body. */
export function revisedLine(bytes: Uint8Array, revise: Revision["revise"]): Uint8Array {
  if (revise === AS_BEFORE.revise) return bytes;
  const line = JSON.parse(new TextDecoder().decode(bytes));
  return new TextEncoder().encode(JSON.stringify({ ...line, body: revise(line.body) }));
}
