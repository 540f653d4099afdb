import { GgufError, quote } from "../gguf/errors.ts";
import { FORMATS } from "../gguf/formats.ts";
import { requireFloats } from "../gguf/float_tensor.ts";
import { requireTensor } from "../gguf/hparams.ts";
import type { GgufFile, TensorInfo, TensorType } from "../gguf/types.ts";
import { checkBuffers } from "./check.ts";
import { groupKvLayers } from "./kv_groups.ts";
import type { PlanOp } from "./ops/registry.ts";
import type {
  BufferForm,
  BufferId,
  BufferRows,
  Forms,
  KvLayer,
  Plan,
  PlanBuffer,
  PlanTensor,
  RopeAngles,
  StateLayer,
  TensorId,
} from "./plan.ts";

/** What the rows of each of several matrices in a tensor come in, so that it begins with a panel of any instruction set. */
const STACKED_ROWS = 16;

/** The type whose matrices come with a number that their values are multiplied by, or one an expert. */
const WITH_FACTORS: TensorType = "NVFP4";

/** What the names of buffers say of their form. */
const SUFFIXES: Readonly<Record<BufferForm, string>> = { float: "", quant: ".q8", fine: ".q15" };

/** Activations on their way through a model. Which forms they take is settled by who reads them. */
export class Value {
  /** Grows until the plan is finished: an op that writes the value keeps this object, one that reads it a copy. */
  readonly forms: { float?: BufferId; quant?: BufferId; fine?: BufferId } = {};
  constructor(readonly name: string, readonly rows: BufferRows, readonly columns: number) {}
}

/** Rows of a tensor that holds several matrices one below the other: those from `first` on, of `of`. */
export interface RowsOf {
  readonly name: string;
  readonly first: number;
  readonly of: number;
  /** The matrices lie behind each other, all of as many rows: the tensor has a dimension more. */
  readonly stacked?: boolean;
}

/**
 * Collects a plan's ops, buffers and tensors. Architectures call the functions beside the ops (`ops/*.ts`), which call
 * this. Every tensor is looked up with the shape that the hyper-parameters demand: a missing one, or one of another
 * shape, is a GgufError that names it.
 */
export class PlanBuilder {
  readonly #tensors: PlanTensor[] = [];
  readonly #tensorIds = new Map<string, TensorId>();
  /** The file's tensors that are read, in whole or in part. */
  readonly #read = new Set<string>();
  readonly #buffers: PlanBuffer[] = [];
  readonly #ops: PlanOp[] = [];
  /** Values that come into being as floats: a quantised form takes an op of its own. */
  readonly #floatOnly = new Set<Value>();
  /** Tensors of the file that the model is right to be computed without. */
  readonly #leftOut: ((name: string) => boolean)[] = [];
  readonly #kvLayers: Omit<KvLayer, "group">[] = [];
  readonly #rope: RopeAngles[] = [];
  readonly #states: StateLayer[] = [];
  /** Names of those that matrices are multiplied by. */
  readonly #factors = new Set<string>();
  /** Write the ops behind all others. */
  readonly #ends: (() => void)[] = [];

  readonly drafts: boolean;
  readonly fine: boolean;

  /** `drafts`: with the layer that drafts tokens, of files that have one. `fine`: all blocks of weights read activations in two planes. */
  constructor(readonly file: GgufFile, { drafts = false, fine = false } = {}) {
    this.drafts = drafts;
    this.fine = fine;
  }

  push(op: PlanOp): void {
    this.#ops.push(op);
  }

  /** A new value, which its op writes in whatever forms its readers want. */
  value(name: string, rows: BufferRows, columns: number): Value {
    return new Value(name, rows, columns);
  }

  /** A new value, which its op writes as floats. */
  floats(name: string, rows: BufferRows, columns: number): Value {
    const value = new Value(name, rows, columns);
    this.#floatOnly.add(value);
    this.asFloat(value);
    return value;
  }

  /** Makes the value available as floats. */
  asFloat(value: Value): BufferId {
    return value.forms.float ??= this.#buffer(value, "float");
  }

  /** The value's floats, to be changed in place: what was quantised of them before is no form of the value any more. */
  update(value: Value): BufferId {
    if (this.#floatOnly.has(value)) {
      delete value.forms.quant;
      delete value.forms.fine;
    }
    return this.asFloat(value);
  }

  /** Makes the value available in two planes. */
  asFine(value: Value): BufferId {
    return this.#asBlocks(value, "fine");
  }

  /** Makes x available in the form that the matrix's kernels read; returns the matrix. */
  operand(x: Value, matrix: TensorId): TensorId {
    if (this.readsFloats(matrix)) this.asFloat(x);
    else this.#asBlocks(x, this.fine ? "fine" : "quant");
    return matrix;
  }

  /** The same for experts' matrices, which read blocks in one plane. */
  expertOperand(x: Value, matrix: TensorId): TensorId {
    if (this.readsFloats(matrix)) this.asFloat(x);
    else this.#asBlocks(x, "quant");
    return matrix;
  }

  /** The value's floats and blocks, for ops whose blocks are all in one plane or all in two. */
  blocksOf({ forms: { float, quant, fine } }: Value): Forms {
    return this.fine ? { float, fine } : { float, quant };
  }

  /** Whether the matrix's kernels read floats, and not 8-bit blocks. */
  readsFloats(matrix: TensorId): boolean {
    return FORMATS[this.#tensors[matrix].info.type].float;
  }

  /** A matrix, or rows of one; one of a single row may come as a vector. */
  matrix(tensor: string | RowsOf, columns: number, rows: number): TensorId {
    if (typeof tensor === "string") {
      const isVector = rows === 1 && this.file.tensors.get(tensor)?.shape.length === 1;
      const info = requireTensor(this.file, tensor, isVector ? [columns] : [columns, rows]);
      return this.#tensor({ info, kind: "matrix", columns, rows, factors: this.#factorsOf(info, 1) });
    }
    const below = tensor.stacked ? [rows, tensor.of / rows] : [tensor.of];
    const whole = requireTensor(this.file, tensor.name, [columns, ...below]);
    const info = rowsOf(whole, tensor, [columns, rows]);
    return this.#tensor({ info, kind: "matrix", columns, rows, factors: this.#factorsOf(whole, 1) });
  }

  /** A tensor of `count` matrices, one an expert. */
  experts(name: string, columns: number, rows: number, count: number): TensorId {
    return this.#stacked("an expert", name, [columns, rows, count], count);
  }

  /** A tensor of `count` matrices of which every row reads all. */
  matrices(name: string, columns: number, rows: number, count: number): TensorId {
    return this.#stacked("a matrix", name, [columns, rows, count]);
  }

  #stacked(
    what: string,
    name: string,
    shape: readonly [columns: number, rows: number, count: number],
    experts?: number,
  ): TensorId {
    const [columns, rows, count] = shape;
    const info = requireTensor(this.file, name, shape);
    if (rows % STACKED_ROWS !== 0) {
      const detail = `${what} must have a multiple of ${STACKED_ROWS} rows (got ${rows})`;
      throw new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(name)}` });
    }
    const factors = this.#factorsOf(info, count);
    return this.#tensor({ info, kind: "matrix", columns, rows: count * rows, experts, factors });
  }

  /** What a matrix's values are multiplied by, of a type that files have such numbers for; not where an op has read them already. */
  #factorsOf({ name, type }: TensorInfo, count: number): TensorInfo | undefined {
    const factors = name.replace(/weight$/, "scale");
    const isRead = this.#read.has(factors) && !this.#factors.has(factors);
    if (type !== WITH_FACTORS || factors === name || !this.file.tensors.has(factors) || isRead) {
      return undefined;
    }
    this.#factors.add(factors);
    this.#read.add(factors);
    return requireFloats(this.file, factors, [count]);
  }

  /** A tensor that is kept as f32, whatever its shape. */
  vector(name: string, ...shape: number[]): TensorId {
    const length = shape.reduce((product, n) => product * n, 1);
    const info = requireTensor(this.file, name, shape);
    return this.#tensor({ info, kind: "vector", columns: length, rows: 1 });
  }

  /** What is added to the products of a matrix; of experts, a vector each. Undefined where the file has none. */
  bias(name: string, ...shape: number[]): TensorId | undefined {
    return this.file.tensors.has(`${name}.bias`) ? this.vector(`${name}.bias`, ...shape) : undefined;
  }

  /** That part of a bias which belongs to one of several matrices in a tensor, where the file has one. */
  biasPart(rows: RowsOf, length: number): TensorId | undefined {
    const name = `${rows.name}.bias`;
    if (!this.file.tensors.has(name)) return undefined;
    const info = rowsOf(requireTensor(this.file, name, [rows.of]), rows, [length]);
    return this.#tensor({ info, kind: "vector", columns: length, rows: 1 });
  }

  /** The place in the KV cache of a layer that keeps keys and values of such heads. */
  kvLayer(layer: Omit<KvLayer, "group">): number {
    return this.#kvLayers.push(layer) - 1;
  }

  /** Adds a table of angles a position; returns its place among them. */
  ropeTable(angles: RopeAngles): number {
    return this.#rope.push(angles) - 1;
  }

  /** The place among the recurrent states of a layer that carries this. */
  stateLayer(layer: StateLayer): number {
    return this.#states.push(layer) - 1;
  }

  /** Says that tensors of these names are no part of what is computed. */
  leaveOut(matches: (name: string) => boolean): void {
    this.#leftOut.push(matches);
  }

  /** Has ops written behind all others. */
  atEnd(write: () => void): void {
    this.#ends.push(write);
  }

  /** The plan; refuses a file with tensors that no op reads and that were not left out. */
  finish(head: Pick<Plan, "architecture" | "vocabSize" | "contextLength">): Plan {
    for (const write of this.#ends) write();
    this.#refuseUnread(head.architecture);
    const plan: Plan = {
      ...head,
      kv: { type: "f16", ...groupKvLayers(this.#kvLayers, this.#ops) },
      rope: this.#rope,
      states: this.#states,
      tensors: this.#tensors,
      buffers: this.#buffers,
      ops: this.#ops,
    };
    checkBuffers(plan);
    return plan;
  }

  #refuseUnread(architecture: string): void {
    for (const name of this.file.tensors.keys()) {
      if (this.#read.has(name) || this.#leftOut.some((matches) => matches(name))) continue;
      const detail = `found in the file, but architecture ${quote(architecture)} has no use for it`;
      throw new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(name)}` });
    }
  }

  #buffer(value: Value, form: BufferForm): BufferId {
    const name = `${value.name}${SUFFIXES[form]}#${this.#buffers.length}`;
    this.#buffers.push({ name, form, rows: value.rows, columns: value.columns });
    return this.#buffers.length - 1;
  }

  #asBlocks(value: Value, form: "quant" | "fine"): BufferId {
    const known = value.forms[form];
    if (known !== undefined) return known;
    const made = value.forms[form] = this.#buffer(value, form);
    if (this.#floatOnly.has(value)) {
      this.push({ op: "quantize", x: value.forms.float!, out: { [form]: made } });
    }
    return made;
  }

  #tensor(tensor: PlanTensor): TensorId {
    const known = this.#tensorIds.get(tensor.info.name);
    if (known !== undefined) return known;
    this.#tensors.push(tensor);
    this.#tensorIds.set(tensor.info.name, this.#tensors.length - 1);
    this.#read.add(wholeName(tensor.info.name));
    return this.#tensors.length - 1;
  }
}

/** What the name of a part of a tensor ends with. */
const PART = /\[\d+:\d+\]$/;

/** What the file calls a plan's tensor, which may be a part of one. */
export function wholeName(name: string): string {
  return name.replace(PART, "");
}

/** Consecutive rows, or values, of a tensor, as if they were one: in the file they stand in a row. */
function rowsOf(whole: TensorInfo, { first, of }: RowsOf, shape: readonly number[]): TensorInfo {
  const rows = shape.at(-1)!;
  const rowBytes = whole.byteLength / of;
  return {
    ...whole,
    name: `${whole.name}[${first}:${first + rows}]`,
    shape,
    offset: whole.offset + first * rowBytes,
    byteLength: rows * rowBytes,
  };
}
