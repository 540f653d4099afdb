import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { floats, groups, optional, real } from "../operands.ts";

/** Op: x *= rms(like) / max(rms(x), least) for each x. The optional `mean` receives the mean of `like` and all x. */
export const MATCH_RMS = opKind({
  op: "match_rms",
  code: 37,
  operands: {
    like: floats("read"),
    xs: groups({ x: floats("update") }),
    least: real,
    mean: optional(floats("write")),
  },
  text: (op, t) => {
    const names = op.xs.map(({ x }) => t.buffer(x)).join(", ");
    const mean = op.mean === undefined ? "" : `; ${t.buffer(op.mean)} = their mean with it`;
    return `${names} = match_rms(${names} to ${t.buffer(op.like)}, at least ${op.least})${mean}`;
  },
});

/** Scales each x so that its rows have the root mean square of `like`'s rows. */
export function matchRms(b: PlanBuilder, like: Value, xs: readonly Value[], least: number): void {
  b.push(MATCH_RMS, { ...matched(b, like, xs, least) });
}

/** Scales the other values as `matchRms` does. Returns the mean of `like` and the scaled values. */
export function meanOfMatched(b: PlanBuilder, like: Value, xs: readonly Value[], least: number): Value {
  const mean = b.floats("mean", like.rows, like.columns);
  b.push(MATCH_RMS, { ...matched(b, like, xs, least), mean: b.asFloat(mean) });
  return mean;
}

function matched(b: PlanBuilder, like: Value, xs: readonly Value[], least: number) {
  return { like: b.asFloat(like), xs: xs.map((x) => ({ x: b.update(x) })), least };
}
