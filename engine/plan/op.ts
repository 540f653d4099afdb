import type { Operands, Values } from "./operands.ts";
import type { Forms, Plan } from "./plan.ts";
import { formsOf } from "./plan.ts";

/** A kind of op, described once. */
export interface OpKind<Name extends string = string, L extends Operands = Operands> {
  readonly op: Name;
  /** Its word on the wire; rust-kernels/src/ops has the same. */
  readonly code: number;
  /** In the order of their words. */
  readonly operands: L;
  /** The op in a printed plan. It names all that the op computes. */
  text(op: Values<L>, names: Names): string;
  /** What a layer is called whose tokens the op mixes; absent where it mixes none. */
  mixer?(op: Values<L>): string;
  /** What each row does with each token of its context; absent where an op has nothing to do with contexts. */
  context?(op: Values<L>): ContextWork;
}

/** What an op does with a token of a row's context. */
export interface ContextWork {
  /** Operations in f32. */
  readonly operations: number;
  /** The layer of the KV cache that is read. */
  readonly cache: number;
  /** Tokens that a row sees, its own the last of them; undefined where it sees all. */
  readonly window?: number;
}

/** The ops of a kind. */
export type OpOf<K> = K extends OpKind<infer Name, infer L> ? { readonly op: Name } & Values<L> : never;

/** Describes a kind of op; its type follows from the operands. */
export function opKind<const Name extends string, L extends Operands>(
  kind: OpKind<Name, L>,
): OpKind<Name, L> {
  return kind;
}

/** What buffers and tensors are called in a printed plan. */
export class Names {
  constructor(private readonly plan: Plan) {}

  buffer(id: number): string {
    const { name, rows, columns } = this.plan.buffers[id];
    return `${name}[${typeof rows === "string" ? rows : `${rows.used} of ${rows.count}`},${columns}]`;
  }

  buffers(...ids: readonly number[]): string {
    return ids.map((id) => this.buffer(id)).join(", ");
  }

  /** The forms of one value. */
  forms(value: Forms): string {
    return formsOf(value).map((id) => this.buffer(id)).join(" ");
  }

  tensor(id: number): string {
    const { info, kind, rows, columns, experts } = this.plan.tensors[id];
    const matrix = experts === undefined ? `${rows}x${columns}` : `${experts}x${rows / experts}x${columns}`;
    return `${info.name}:${info.type}:${kind === "matrix" ? matrix : `${columns}`}`;
  }

  /** A matrix, and what is added to its products. */
  affine(weight: number, bias: number | undefined): string {
    return bias === undefined ? this.tensor(weight) : `${this.tensor(weight)} + ${this.tensor(bias)}`;
  }

  tensors(...ids: readonly (number | undefined)[]): string {
    return ids.filter((id) => id !== undefined).map((id) => this.tensor(id)).join(", ");
  }
}
