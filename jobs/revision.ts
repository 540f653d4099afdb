import type { Asked } from "./asked.ts";

/** What a retry asks otherwise than the job did. Good answers are not asked again, so it changes none of them. */
export interface Revision {
  /** The options that differ, as `Asked` has them. */
  readonly asked: Asked;
  readonly revise: (body: Record<string, unknown>) => Record<string, unknown>;
}

export const AS_BEFORE: Revision = { asked: {}, revise: (body) => body };

/** A line with the revised body. */
export function revisedLine(bytes: Uint8Array, revise: Revision["revise"]): Uint8Array {
  if (revise === AS_BEFORE.revise) return bytes;
  const line = JSON.parse(new TextDecoder().decode(bytes));
  return new TextEncoder().encode(JSON.stringify({ ...line, body: revise(line.body) }));
}
