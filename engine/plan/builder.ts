import { FORMATS } from "../gguf/formats.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import { requireTensor } from "../gguf/hparams.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import {
  type BufferForm,
  type BufferId,
  type BufferRows,
  CONV_TAPS,
  type DeltaShape,
  type Forms,
  type HeadShape,
  type MatMulPart,
  type Plan,
  type PlanBuffer,
  type PlanOp,
  type PlanTensor,
  type TensorId,
} from "./plan.ts";

/** What the names of buffers say of their form. */
const SUFFIXES: Readonly<Record<BufferForm, string>> = { float: "", quant: ".q8", fine: ".q15" };

/** Activations on their way through a model. Which forms they take is settled by who reads them. */
export class Value {
  float?: BufferId;
  quant?: BufferId;
  fine?: BufferId;
  constructor(readonly name: string, readonly rows: BufferRows, readonly columns: number) {}
}

export interface Linear {
  /** Tensor name without `.weight`; `.bias` beside it is added where the file has one. */
  readonly name: string;
  readonly rows: number;
  /** Adds to this value (a residual connection) instead of making a new one. */
  readonly addTo?: Value;
  /**
   * So many of the first rows are sensitive products: where the weights are blocks, x keeps some 15 bits instead of 8 for
   * them, at twice the work. All rows, or a multiple of 16.
   */
  readonly fine?: number;
}

export interface RopeOptions {
  readonly table: Value;
  readonly rotated: number;
  readonly interleaved: boolean;
  readonly eps: number;
  /** Tensor names of the per-head norms. */
  readonly qNorm?: string;
  readonly kNorm?: string;
}

/** Activations that the delta rule reads: rows of queries, keys and values; a gate as wide as the values; a number a head. */
export interface DeltaInputs {
  readonly qkv: Value;
  readonly gate: Value;
  readonly alpha: Value;
  readonly beta: Value;
}

/** Whole names of the delta rule's tensors: a number a value head, twice, and a norm. */
export interface DeltaTensors {
  readonly decay: string;
  readonly bias: string;
  readonly norm: string;
}

/**
 * Writes a plan, op by op, in the words of a model's architecture. Every tensor is looked up with the shape that the
 * hyper-parameters demand: a missing one, or one of another shape, is a GgufError that names it.
 */
export class PlanBuilder {
  readonly #tensors: PlanTensor[] = [];
  readonly #tensorIds = new Map<string, TensorId>();
  readonly #buffers: PlanBuffer[] = [];
  readonly #ops: PlanOp[] = [];
  /** Ops whose operands settle only once all readers are known. */
  readonly #late: (() => void)[] = [];
  /** Values that come into being as floats: a quantised form takes an op of its own. */
  readonly #floatOnly = new Set<Value>();

  /** Tensors of the file that the model is right to be computed without. */
  readonly #leftOut: ((name: string) => boolean)[] = [];
  #kv = { type: "f16" as const, layers: 0, heads: 0, headDim: 0 };
  #recurrent = { layers: 0, keyHeads: 0, valueHeads: 0, headDim: 0 };

  constructor(readonly file: GgufFile) {}

  /** The tokens' rows of the embedding. */
  embed(name: string, vocab: number, columns: number): Value {
    const out = this.#floatValue("x", "step", columns);
    this.#ops.push({ op: "embed", weight: this.#matrix(`${name}.weight`, columns, vocab), out: out.float! });
    return out;
  }

  ropeTable(rotated: number): Value {
    const out = this.#floatValue("angles", "step", rotated);
    this.#ops.push({ op: "rope_table", out: out.float! });
    return out;
  }

  /** `rows` "logits" keeps only the rows whose logits are wanted. */
  rmsNorm(x: Value, name: string, eps: number, rows: BufferRows = x.rows): Value {
    const out = new Value("normed", rows, x.columns);
    const op = {
      op: "rms_norm" as const,
      x: this.#asFloat(x),
      weight: this.#vector(`${name}.weight`, x.columns),
      eps,
      out: {} as Forms,
    };
    this.#ops.push(op);
    this.#late.push(() => op.out = forms(out));
    return out;
  }

  /** Matrices that read the same x, in one op. */
  linear(x: Value, linears: readonly Linear[]): Value[] {
    const values = linears.map((l) => l.addTo ?? this.#floatValue(shortName(l.name), x.rows, l.rows));
    const parts = linears.map((l, i): MatMulPart => {
      const matrix = this.#matrix(`${l.name}.weight`, x.columns, l.rows);
      const fine = this.#isFloat(matrix) ? 0 : l.fine ?? 0;
      if (fine > 0) this.#asFine(x);
      if (fine < l.rows) this.#operand(x, matrix);
      return {
        weight: matrix,
        bias: this.file.tensors.has(`${l.name}.bias`) ? this.#vector(`${l.name}.bias`, l.rows) : undefined,
        out: this.#asFloat(values[i]),
        add: l.addTo !== undefined,
        fine,
      };
    });
    this.#ops.push({ op: "matmul", x: forms(x), parts });
    return values;
  }

  swiglu(x: Value, gate: string, up: string, rows: number): Value {
    const out = new Value("ffn", x.rows, rows);
    const [g, u] = [gate, up].map((n) => this.#operand(x, this.#matrix(`${n}.weight`, x.columns, rows)));
    const op = { op: "swiglu" as const, x: forms(x), gate: g, up: u, out: {} as Forms };
    this.#ops.push(op);
    this.#late.push(() => op.out = forms(out));
    return out;
  }

  /** The place in the KV cache of the next layer that has one. */
  kvLayer(): number {
    return this.#kv.layers++;
  }

  ropeAppend([q, k, v]: readonly Value[], heads: HeadShape, rope: RopeOptions): void {
    this.#kv = { ...this.#kv, heads: heads.kvHeads, headDim: heads.headDim };
    this.#ops.push({
      op: "rope_append",
      q: this.#asFloat(q),
      k: this.#asFloat(k),
      v: this.#asFloat(v),
      table: this.#asFloat(rope.table),
      qNorm: rope.qNorm ? this.#vector(`${rope.qNorm}.weight`, heads.headDim) : undefined,
      kNorm: rope.kNorm ? this.#vector(`${rope.kNorm}.weight`, heads.headDim) : undefined,
      heads,
      rotated: rope.rotated,
      interleaved: rope.interleaved,
      eps: rope.eps,
    });
  }

  attention(q: Value, heads: HeadShape, scale: number): Value {
    const out = this.#floatValue("attn", q.rows, heads.heads * heads.headDim);
    this.#ops.push({ op: "attention", q: this.#asFloat(q), out: out.float!, heads, scale });
    return out;
  }

  /** The place among the recurrent states of the next layer that has one. */
  recurrentLayer(): number {
    return this.#recurrent.layers++;
  }

  /** Convolves queries, keys and values, in place. `name` is the tensor of the weights, [CONV_TAPS, channels]. */
  shortConv(qkv: Value, name: string, heads: DeltaShape, eps: number): void {
    const { keyHeads, valueHeads, headDim } = heads;
    this.#recurrent = { layers: this.#recurrent.layers, keyHeads, valueHeads, headDim };
    const info = requireTensor(this.file, `${name}.weight`, [CONV_TAPS, qkv.columns]);
    const weight = this.#tensor(info, "vector", CONV_TAPS * qkv.columns, 1);
    this.#ops.push({ op: "short_conv", x: this.#asFloat(qkv), weight, heads, eps });
  }

  /** Reads the state that it carries, and norms and gates what it has read. */
  deltaRule(inputs: DeltaInputs, tensors: DeltaTensors, heads: DeltaShape, eps: number): Value {
    const out = new Value("delta", inputs.qkv.rows, heads.valueHeads * heads.headDim);
    const op = {
      op: "delta_rule" as const,
      qkv: this.#asFloat(inputs.qkv),
      gate: this.#asFloat(inputs.gate),
      alpha: this.#asFloat(inputs.alpha),
      beta: this.#asFloat(inputs.beta),
      decay: this.#vector(tensors.decay, heads.valueHeads),
      bias: this.#vector(tensors.bias, heads.valueHeads),
      norm: this.#vector(tensors.norm, heads.headDim),
      heads,
      eps,
      out: {} as Forms,
    };
    this.#ops.push(op);
    this.#late.push(() => op.out = forms(out));
    return out;
  }

  /** The best tokens to follow each row of x; the embedding is the matrix where the file has none for the output. */
  candidates(x: Value, vocab: number): void {
    const name = this.file.tensors.has("output.weight") ? "output" : "token_embd";
    const [logits] = this.linear(x, [{ name, rows: vocab }]);
    const weight = this.#matrix(`${name}.weight`, x.columns, vocab);
    const rounded = x.quant !== undefined;
    const exact = rounded ? { x: this.#asFloat(x), weight } : undefined;
    this.#ops.push({ op: "candidates", logits: this.#asFloat(logits), exact });
  }

  /** Says that tensors of these names are no part of what is computed. */
  leaveOut(matches: (name: string) => boolean): void {
    this.#leftOut.push(matches);
  }

  /** The plan; refuses a file with tensors that no op reads and that were not left out. */
  finish(head: Pick<Plan, "architecture" | "vocabSize" | "contextLength" | "frequencies">): Plan {
    for (const settle of this.#late) settle();
    this.#refuseUnread(head.architecture);
    return {
      ...head,
      kv: this.#kv,
      recurrent: this.#recurrent,
      tensors: this.#tensors,
      buffers: this.#buffers,
      ops: this.#ops,
    };
  }

  #refuseUnread(architecture: string): void {
    for (const name of this.file.tensors.keys()) {
      if (this.#tensorIds.has(name) || this.#leftOut.some((matches) => matches(name))) continue;
      const detail = `found in the file, but architecture ${quote(architecture)} has no use for it`;
      throw new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(name)}` });
    }
  }

  #floatValue(name: string, rows: BufferRows, columns: number): Value {
    const value = new Value(name, rows, columns);
    value.float = this.#buffer(value, "float");
    this.#floatOnly.add(value);
    return value;
  }

  #buffer(value: Value, form: BufferForm): BufferId {
    const name = `${value.name}${SUFFIXES[form]}#${this.#buffers.length}`;
    this.#buffers.push({ name, form, rows: value.rows, columns: value.columns });
    return this.#buffers.length - 1;
  }

  #asFloat(value: Value): BufferId {
    return value.float ??= this.#buffer(value, "float");
  }

  #asQuant(value: Value): BufferId {
    if (value.quant === undefined) {
      value.quant = this.#buffer(value, "quant");
      if (this.#floatOnly.has(value)) {
        this.#ops.push({ op: "quantize", x: value.float!, out: value.quant });
      }
    }
    return value.quant;
  }

  /** Makes x available in the form that the matrix's kernels read; returns the matrix. */
  #operand(x: Value, matrix: TensorId): TensorId {
    if (this.#isFloat(matrix)) this.#asFloat(x);
    else this.#asQuant(x);
    return matrix;
  }

  /** In two planes, which norms and the delta rule write. */
  #asFine(value: Value): void {
    if (this.#floatOnly.has(value)) throw new TypeError(`${value.name} does not come in two planes`);
    value.fine ??= this.#buffer(value, "fine");
  }

  #isFloat(matrix: TensorId): boolean {
    return FORMATS[this.#tensors[matrix].info.type].float;
  }

  #matrix(name: string, columns: number, rows: number): TensorId {
    const info = requireTensor(this.file, name, [columns, rows]);
    return this.#tensor(info, "matrix", columns, rows);
  }

  #vector(name: string, length: number): TensorId {
    return this.#tensor(requireTensor(this.file, name, [length]), "vector", length, 1);
  }

  #tensor(info: TensorInfo, kind: PlanTensor["kind"], columns: number, rows: number): TensorId {
    const known = this.#tensorIds.get(info.name);
    if (known !== undefined) return known;
    this.#tensors.push({ info, kind, columns, rows });
    this.#tensorIds.set(info.name, this.#tensors.length - 1);
    return this.#tensors.length - 1;
  }
}

function forms(value: Value): Forms {
  return { float: value.float, quant: value.quant, fine: value.fine };
}

/** `blk.3.attn_q` -> `attn_q`. */
function shortName(tensor: string): string {
  return tensor.slice(tensor.lastIndexOf(".") + 1);
}
