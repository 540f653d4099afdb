import type { Operands, Values } from "./operands.ts";
import { type Forms, formsOf, type PlanBuffer, type PlanTensor } from "./values.ts";

/** Describes one kind of op. Encoding, printing and types derive from it. */
export interface OpKind<Name extends string = string, L extends Operands = Operands> {
  readonly op: Name;
  /** The op's code when encoded, the same as in rust-kernels/src/ops. */
  readonly code: number;
  /** The op's operands in the order of encoding. */
  readonly operands: L;
  /** Returns the op's line in a printed plan, which names everything that the op computes. */
  text(op: Values<L>, names: Names): string;
  /** Returns the kind of layer whose tokens the op mixes; undefined if it mixes none. */
  mixer?(op: Values<L>): string;
  /** Returns the work of each row per token of context; undefined if the op reads no context. */
  context?(op: Values<L>): ContextWork;
}

/** An op's work per context token of a row. */
export interface ContextWork {
  /** Number of f32 operations per context token. */
  readonly operations: number;
  /** Index of the KV cache layer that is read; undefined if all rows of a text attend to each other, without a cache. */
  readonly cache?: number;
  /** Whether the op reads only the layer's keys. */
  readonly keysOnly?: boolean;
  /** Whether the products are in floats even where integers are faster. */
  readonly float?: boolean;
  /** Number of tokens that a row attends to, including itself; undefined for all. */
  readonly window?: number;
  /** Maximum number of tokens that a row reads, if the cache keeps all tokens; undefined for all. */
  readonly reads?: number;
}

/** The type of an op of kind K. */
export type OpOf<K> = K extends OpKind<infer Name, infer L> ? { readonly op: Name } & Values<L> : never;

/** Returns the description of a kind of op. Its type follows from the operands. */
export function opKind<const Name extends string, L extends Operands>(
  kind: OpKind<Name, L>,
): OpKind<Name, L> {
  return kind;
}

/** Returns the names of buffers and tensors in a printed plan. */
export class Names {
  constructor(
    private readonly plan: {
      readonly buffers: readonly PlanBuffer[];
      readonly tensors: readonly PlanTensor[];
    },
  ) {}

  buffer(id: number): string {
    const { name, rows, columns } = this.plan.buffers[id];
    return `${name}[${typeof rows === "string" ? rows : `${rows.used} of ${rows.count}`},${columns}]`;
  }

  buffers(...ids: readonly number[]): string {
    return ids.map((id) => this.buffer(id)).join(", ");
  }

  /** Returns the names of a value's forms. */
  forms(value: Forms): string {
    return formsOf(value).map((id) => this.buffer(id)).join(" ");
  }

  tensor(id: number): string {
    const { info, kind, rows, columns, experts } = this.plan.tensors[id];
    const matrix = experts === undefined ? `${rows}x${columns}` : `${experts}x${rows / experts}x${columns}`;
    return `${info.name}:${info.type}:${kind === "matrix" ? matrix : `${columns}`}`;
  }

  /** Returns a matrix's name, and its bias if any. */
  affine(weight: number, bias: number | undefined): string {
    return bias === undefined ? this.tensor(weight) : `${this.tensor(weight)} + ${this.tensor(bias)}`;
  }

  tensors(...ids: readonly (number | undefined)[]): string {
    return ids.filter((id) => id !== undefined).map((id) => this.tensor(id)).join(", ");
  }
}
