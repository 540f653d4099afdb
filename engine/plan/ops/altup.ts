import type { PlanBuilder, Value } from "../builder.ts";
import { type Names, opKind } from "../op.ts";
import { floats, forms, group, groups, real, weights } from "../operands.ts";
import type { TensorId } from "../values.ts";

/** Operand: several streams of rows; layers compute on the first. */
const streams = groups({ x: floats("update") });

/**
 * Operand: how streams mix. Row x of one stream gives the coefficients: coefs tanh(router (x / rms(x) * norm) /
 * columns).
 */
const mixing = group({ norm: weights, router: weights, coefs: weights, eps: real });

/**
 * AltUp before a layer: streams[i] += sum over j of c[n i + j] * streams[j], for n streams, with coefficients c from
 * the first stream. The output is scale * streams[0].
 */
export const ALTUP_PREDICT = opKind({
  op: "altup_predict",
  code: 35,
  operands: { streams, mixing, scale: real, out: floats("write") },
  text: (op, t) => {
    const names = op.streams.map(({ x }) => t.buffer(x)).join(", ");
    const copy = `${t.buffer(op.out)} = ${op.scale} * ${t.buffer(op.streams[0].x)}`;
    return `${names} = altup_predict(${names} by ${mixingText(op.mixing, t)}); ${copy}`;
  },
});

/**
 * AltUp after a layer with output x: streams[i] += (1 + c[i]) * (x - streams[0]), with coefficients c from x. The
 * output is scale * streams[0], column by column.
 */
export const ALTUP_CORRECT = opKind({
  op: "altup_correct",
  code: 36,
  operands: { x: floats("read"), streams, mixing, scale: weights, out: forms("write", 3) },
  text: (op, t) => {
    const names = op.streams.map(({ x }) => t.buffer(x)).join(", ");
    const made = `altup_correct(${names} to ${t.buffer(op.x)} by ${mixingText(op.mixing, t)})`;
    const copy = `${t.forms(op.out)} = ${t.tensor(op.scale)} * ${t.buffer(op.streams[0].x)}`;
    return `${names} = ${made}; ${copy}`;
  },
});

function mixingText(
  { norm, router, coefs, eps }: { norm: TensorId; router: TensorId; coefs: TensorId; eps: number },
  t: Names,
): string {
  return `${t.tensors(coefs, router, norm)}, eps ${eps}`;
}

/** Names of the tensors that mix AltUp's streams, without `.weight`. */
export interface Mixing {
  readonly norm: string;
  readonly router: string;
  readonly coefs: string;
  readonly eps: number;
}

/** Predicts each AltUp stream from all streams. Returns the first stream's rows times `scale`. */
export function altupPredict(b: PlanBuilder, streams: readonly Value[], by: Mixing, scale: number): Value {
  const [{ rows, columns }] = streams;
  const out = b.floats("active", rows, columns);
  b.push(ALTUP_PREDICT, {
    streams: streams.map((stream) => ({ x: b.update(stream) })),
    mixing: mixingOf(b, by, columns, streams.length, streams.length ** 2),
    scale,
    out: b.asFloat(out),
  });
  return out;
}

/** Corrects each AltUp stream by the layer's output x. Returns the first stream's rows times the vector `scale`. */
export function altupCorrect(
  b: PlanBuilder,
  x: Value,
  streams: readonly Value[],
  by: Mixing,
  scale: string,
): Value {
  const out = b.value("corrected", x.rows, x.columns);
  b.push(ALTUP_CORRECT, {
    x: b.asFloat(x),
    streams: streams.map((stream) => ({ x: b.update(stream) })),
    mixing: mixingOf(b, by, x.columns, streams.length, streams.length),
    scale: b.vector(`${scale}.weight`, x.columns),
    out: out.forms,
  });
  return out;
}

function mixingOf(
  b: PlanBuilder,
  { norm, router, coefs, eps }: Mixing,
  columns: number,
  streams: number,
  count: number,
) {
  return {
    norm: b.vector(`${norm}.weight`, columns),
    router: b.vector(`${router}.weight`, columns, streams),
    coefs: b.vector(`${coefs}.weight`, streams, count),
    eps,
  };
}
