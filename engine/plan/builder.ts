import { GgufError, quote } from "../gguf/errors.ts";
import { FORMATS } from "../gguf/formats.ts";
import { requireFloats } from "../gguf/float_tensor.ts";
import { requireTensor } from "../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo, TensorType } from "../gguf/types.ts";
import type { AdaptedRows, PlanAdapters } from "./adapters.ts";
import type { ImageRows, RowsWanted } from "./extra_rows.ts";
import type { OpKind } from "./op.ts";
import type { Operands, Values } from "./operands.ts";
import { QUANTIZE } from "./ops/quantize.ts";
import { type HeadRowsOf, matricesOf, type RowsOf, rowsOf, wholeName } from "./tensor_rows.ts";
import type {
  BufferForm,
  BufferId,
  BufferRows,
  Chosen,
  Forms,
  HeadShape,
  KvLayer,
  PlanBuffer,
  PlanTensor,
  RopeAngles,
  StateLayer,
  TensorId,
} from "./values.ts";

/**
 * Rows per stacked matrix come in multiples of this, so that each matrix begins with a whole panel on every
 * instruction set.
 */
const STACKED_ROWS = 16;

/** The tensor type whose matrices come with factors on their values: one per matrix, or one per expert. */
const WITH_FACTORS: TensorType = "NVFP4";

/** Suffix of a buffer's name for each form. */
const SUFFIXES: Readonly<Record<BufferForm, string>> = { float: "", quant: ".q8", fine: ".q15" };

/** Activations that flow through a model. The ops that read them determine their forms. */
export class Value {
  /**
   * Grows until the plan is finished. The op that writes the value keeps this object; ops that read it keep a
   * copy.
   */
  readonly forms: { float?: BufferId; quant?: BufferId; fine?: BufferId } = {};
  constructor(readonly name: string, readonly rows: BufferRows, readonly columns: number) {}
}

export interface BuilderOptions {
  readonly drafts?: boolean;
  readonly draftTokens?: number;
  readonly fine?: boolean;
  readonly adapters?: PlanAdapters;
  readonly images?: ImageRows;
  readonly drafter?: RowsWanted;
}

/** The parts of a plan that a builder has collected. */
export interface PlanParts {
  readonly kvLayers: readonly Omit<KvLayer, "group">[];
  readonly rope: readonly RopeAngles[];
  readonly states: readonly StateLayer[];
  readonly tensors: readonly PlanTensor[];
  readonly buffers: readonly PlanBuffer[];
  readonly ops: readonly { readonly op: string }[];
}

/**
 * Collects a plan's ops, buffers and tensors. Architectures call the functions beside the ops (`ops/*.ts`),
 * which call this builder. Every tensor is looked up with the shape that the hyper-parameters demand. A
 * missing tensor, or one of another shape, throws a GgufError that names it.
 */
export class PlanBuilder {
  readonly #tensors: PlanTensor[] = [];
  readonly #tensorIds = new Map<string, TensorId>();
  /** Tensors of the file that ops read, in whole or in part. */
  readonly #read = new Set<string>();
  readonly #buffers: PlanBuffer[] = [];
  readonly #ops: { readonly op: string }[] = [];
  /** Values that are written as floats only. Their quantized form needs a separate op. */
  readonly #floatOnly = new Set<Value>();
  /** Match tensors of the file that the model correctly does not use. */
  readonly #leftOut: ((name: string) => boolean)[] = [];
  readonly #kvLayers: Omit<KvLayer, "group">[] = [];
  readonly #rope: RopeAngles[] = [];
  readonly #states: StateLayer[] = [];
  /** Names of factor tensors. */
  readonly #factors = new Set<string>();
  /** Callbacks that add the last ops of the plan. */
  readonly #ends: (() => void)[] = [];
  /** Writers of values that depend on positions, which a draft computes again when it first reads them. */
  readonly #positional = new Map<Value, () => void>();
  #draftLayer: number | undefined; // in a draft: the index of the KV layer that the next layer of the draft reads

  /** Number of matrices of each tensor, and of those with adapters beside them. */
  readonly #matrices = new Map<string, { read: number; adapted: number }>();
  #chosenAdapters: Chosen | undefined;

  readonly drafts: boolean;
  readonly draftTokens?: number;
  readonly fine: boolean;
  readonly adapters: PlanAdapters | undefined;
  readonly images: ImageRows | undefined;
  readonly drafter: RowsWanted | undefined;
  /** Input rows of layers, copied for the drafter, by layer. */
  readonly handedOut = new Map<number, Value>();
  /** Heads and KV cache of the last layer of each kind: with a window (`sliding`), and without (`full`). */
  readonly lastCaches: { full?: HeadShape; sliding?: HeadShape } = {};

  /**
   * `drafts` adds the layer that drafts tokens; the file must have one. Drafts choose from the `draftTokens` first
   * tokens, by default from as many tokens as are worth their cost. `fine` makes all products with quantized weights
   * read activations in two planes. `adapters` change products with the model's matrices. With `images`, steps may
   * bring rows of images. `drafter` lists the layers whose input rows are copied for it.
   */
  constructor(
    readonly file: GgufFile,
    { drafts = false, draftTokens, fine = false, adapters, images, drafter }: BuilderOptions = {},
  ) {
    this.drafter = drafter;
    this.images = images;
    this.drafts = drafts;
    this.draftTokens = draftTokens;
    this.fine = fine;
    this.adapters = adapters;
  }

  /** Adds an op of this kind. */
  push<Name extends string, L extends Operands>(kind: OpKind<Name, L>, operands: Values<L>): void {
    this.#ops.push({ op: kind.op, ...operands });
  }

  /** Returns a new value. Its op writes the forms that its readers need. */
  value(name: string, rows: BufferRows, columns: number): Value {
    return new Value(name, rows, columns);
  }

  /** Returns a new value that its op writes as floats. */
  floats(name: string, rows: BufferRows, columns: number): Value {
    const value = new Value(name, rows, columns);
    this.#floatOnly.add(value);
    this.asFloat(value);
    return value;
  }

  /** Ensures that the value exists as floats. Returns the buffer. */
  asFloat(value: Value): BufferId {
    if (this.#draftLayer !== undefined) this.#writeAgain(value);
    return value.forms.float ??= this.#buffer(value, "float");
  }

  /**
   * Returns the value's float buffer for an update in place. Earlier quantized forms of the value become
   * invalid.
   */
  update(value: Value): BufferId {
    if (this.#floatOnly.has(value)) {
      delete value.forms.quant;
      delete value.forms.fine;
    }
    return this.asFloat(value);
  }

  /** Ensures that the value exists in two planes. Returns the buffer. */
  asFine(value: Value): BufferId {
    return this.#asBlocks(value, "fine");
  }

  /** Ensures that x exists in the form that the matrix's kernels read. Returns the matrix. */
  operand(x: Value, matrix: TensorId): TensorId {
    if (this.readsFloats(matrix)) this.asFloat(x);
    else this.#asBlocks(x, this.fine ? "fine" : "quant");
    return matrix;
  }

  /** Like `operand`, for experts' matrices, which read blocks in one plane. */
  expertOperand(x: Value, matrix: TensorId): TensorId {
    if (this.readsFloats(matrix)) this.asFloat(x);
    else this.#asBlocks(x, "quant");
    return matrix;
  }

  /** Returns the value's floats and blocks, for ops that read all blocks in one plane, or all in two. */
  blocksOf({ forms: { float, quant, fine } }: Value): Forms {
    return this.fine ? { float, fine } : { float, quant };
  }

  /** Whether the matrix's kernels read floats instead of 8-bit blocks. */
  readsFloats(matrix: TensorId): boolean {
    return FORMATS[this.#tensors[matrix].info.type].float;
  }

  /** Whether an adapter changes the tensor. */
  adapts(tensor: string): boolean {
    return this.adapters?.tensors.has(tensor) ?? false;
  }

  /** Adds the adapters' matrices beside a matrix. Undefined where no adapter changes it. */
  lowRank(rows: AdaptedRows): { rank: number; a: TensorId; b: TensorId } | undefined {
    if (!this.adapts(rows.name)) return undefined;
    if (rows.rows % STACKED_ROWS !== 0) this.adapters!.refuse(rows.name);
    this.#matrix(rows.name).adapted++;
    const { rank, a, b } = this.adapters!.pair(rows);
    return { rank, a: this.#tensor(a), b: this.#tensor(b) };
  }

  /** Returns the adapters that each row uses. `write` adds the op that writes them, once. */
  chosenAdapters(write: (chosen: Chosen) => void): Chosen {
    if (this.#chosenAdapters) return this.#chosenAdapters;
    const { count } = this.adapters!;
    const buffer = this.asFloat(this.floats("adapters", "step", 2 * count));
    this.#chosenAdapters = { buffer, count, used: count };
    write(this.#chosenAdapters);
    return this.#chosenAdapters;
  }

  #matrix(name: string): { read: number; adapted: number } {
    const counts = this.#matrices.get(name) ?? { read: 0, adapted: 0 };
    this.#matrices.set(name, counts);
    return counts;
  }

  /** Adds a matrix, or some rows of a matrix. A single-row matrix may be a vector in the file. */
  matrix(tensor: string | RowsOf, columns: number, rows: number): TensorId {
    this.#matrix(typeof tensor === "string" ? tensor : tensor.name).read++;
    if (typeof tensor === "string") {
      const isVector = rows === 1 && this.file.tensors.get(tensor)?.shape.length === 1;
      const info = requireTensor(this.file, tensor, isVector ? [columns] : [columns, rows]);
      const factors = this.#factorsOf(info, 1);
      return this.#tensor({ info, kind: "matrix", columns, rows, factors, bytes: info.made });
    }
    const below = tensor.stacked ? [rows, tensor.of / rows] : [tensor.of];
    const whole = requireTensor(this.file, tensor.name, [columns, ...below]);
    const info = rowsOf(whole, tensor, [columns, rows]);
    return this.#tensor({ info, kind: "matrix", columns, rows, factors: this.#factorsOf(whole, 1) });
  }

  /** Adds a tensor of `count` matrices, one per expert. */
  experts(name: string, columns: number, rows: number, count: number): TensorId {
    return this.#stacked("an expert", name, [columns, rows, count], count);
  }

  /** Adds a tensor of `count` matrices that every row reads: a whole tensor, or some rows of each head. */
  matrices(tensor: string | HeadRowsOf, columns: number, rows: number, count: number): TensorId {
    return this.#stacked("a matrix", tensor, [columns, rows, count]);
  }

  #stacked(
    what: string,
    tensor: string | HeadRowsOf,
    shape: readonly [columns: number, rows: number, count: number],
    experts?: number,
  ): TensorId {
    const [columns, rows, count] = shape;
    const info = matricesOf(this.file, tensor, shape);
    if (rows % STACKED_ROWS !== 0) {
      const detail = `${what} must have a multiple of ${STACKED_ROWS} rows (got ${rows})`;
      throw new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(wholeName(info.name))}` });
    }
    const [factors, bytes] = [this.#factorsOf(info, count), info.made];
    return this.#tensor({ info, kind: "matrix", columns, rows: count * rows, experts, factors, bytes });
  }

  /**
   * Returns the tensor of factors on a matrix's values; undefined for other types, or where an op already
   * reads that tensor.
   */
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

  /** Adds a tensor of any shape that is stored as f32. */
  vector(name: string, ...shape: number[]): TensorId {
    const length = shape.reduce((product, n) => product * n, 1);
    const info = requireTensor(this.file, name, shape);
    return this.#tensor({ info, kind: "vector", columns: length, rows: 1, bytes: info.made });
  }

  /** Adds a tensor of `shape` as a vector. Dimensions of 1 may be missing or added, as converters of an architecture differ. */
  vectorOf(name: string, ...shape: number[]): TensorId {
    const found = this.file.tensors.get(name)?.shape ?? shape;
    const large = (sizes: readonly number[]) => sizes.filter((size) => size !== 1).join(" ");
    return this.vector(name, ...large(found) === large(shape) ? found : shape);
  }

  /** Adds the bias of a matrix, or one bias vector per expert; undefined where the file has none. */
  bias(name: string, ...shape: number[]): TensorId | undefined {
    return this.file.tensors.has(`${name}.bias`) ? this.vector(`${name}.bias`, ...shape) : undefined;
  }

  /**
   * Adds the part of a bias that belongs to one of several stacked matrices; undefined where the file has
   * none.
   */
  biasPart(rows: RowsOf, length: number): TensorId | undefined {
    const name = `${rows.name}.bias`;
    if (!this.file.tensors.has(name)) return undefined;
    const info = rowsOf(requireTensor(this.file, name, [rows.of]), rows, [length]);
    return this.#tensor({ info, kind: "vector", columns: length, rows: 1 });
  }

  /** Adds a layer to the KV cache and returns its index. In a draft, returns the next of the last layers. */
  kvLayer(layer: Omit<KvLayer, "group">): number {
    return this.#draftLayer === undefined ? this.#kvLayers.push(layer) - 1 : this.#draftLayer++;
  }

  /** Runs `write`, which adds the op that writes a value from positions. Runs it again if a draft reads the value. */
  writePositional(value: Value, write: () => void): void {
    if (this.#draftLayer === undefined) this.#positional.set(value, write);
    write();
  }

  /** Begins the draft: later ops run only in drafts. The draft's layers read the last `layers` KV layers. */
  beginDraft(layers: number): void {
    this.#draftLayer = this.#kvLayers.length - layers;
  }

  #writeAgain(value: Value): void {
    const write = this.#positional.get(value);
    this.#positional.delete(value);
    write?.();
  }

  /** Adds a rotary table. Returns its index. */
  ropeTable(angles: RopeAngles): number {
    return this.#rope.push(angles) - 1;
  }

  /** Adds a layer to the recurrent states. Returns its index. */
  stateLayer(layer: StateLayer): number {
    return this.#states.push(layer) - 1;
  }

  /** Marks tensors with these names as not used by the model. */
  leaveOut(matches: (name: string) => boolean): void {
    this.#leftOut.push(matches);
  }

  /** Registers a callback that adds ops at the end of the plan. */
  atEnd(write: () => void): void {
    this.#ends.push(write);
  }

  /** Returns the collected plan. Throws GgufError where the file has tensors that are neither read nor left out. */
  collect(architecture: string): PlanParts {
    for (const write of this.#ends) write();
    this.#refuseUnread(architecture);
    for (const name of this.adapters?.tensors ?? []) {
      const { read, adapted } = this.#matrix(name);
      if (adapted === 0 || adapted !== read) this.adapters!.refuse(name);
    }
    return {
      kvLayers: this.#kvLayers,
      rope: this.#rope,
      states: this.#states,
      tensors: this.#tensors,
      buffers: this.#buffers,
      ops: this.#ops,
    };
  }

  #refuseUnread(architecture: string): void {
    for (const name of [...this.file.tensors.keys(), ...this.file.integers.keys()]) {
      if (this.#read.has(name) || this.#leftOut.some((matches) => matches(name))) continue;
      const detail = `found in the file, but architecture ${quote(architecture)} has no use for it`;
      throw new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(name)}` });
    }
  }

  #buffer(value: Value, form: BufferForm): BufferId {
    const name = `${value.name}${SUFFIXES[form]}#${this.#buffers.length}`;
    return this.#buffers.push({ name, form, rows: value.rows, columns: value.columns }) - 1;
  }

  #asBlocks(value: Value, form: "quant" | "fine"): BufferId {
    const known = value.forms[form];
    if (known !== undefined) return known;
    const made = value.forms[form] = this.#buffer(value, form);
    if (this.#floatOnly.has(value)) {
      this.push(QUANTIZE, { x: value.forms.float!, out: { [form]: made } });
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
