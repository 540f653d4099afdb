import { quote } from "../engine/gguf/errors.ts";
import { layoutOf } from "../engine/gguf/tensor_types.ts";
import type { Checkpoint } from "./checkpoint/checkpoint.ts";
import { refuse } from "./errors.ts";
import { toFloats } from "./checkpoint/floats.ts";
import type { WeightFinder } from "./write/matrix_source.ts";
import type { FloatType, MatrixSource, SafeTensor } from "./checkpoint/tensors.ts";
import { inOrder, inSourceOrder, type Runs } from "./order.ts";
import {
  joinTensors,
  matrixTensor,
  type OutputTensor,
  stackTensors,
  turnedTensor,
  vectorTensor,
} from "./write/output_tensor.ts";
import type { RowWeights } from "./quantize/blocks.ts";
import type { Quantization } from "./quantize/quantization.ts";
import { quantizerOf } from "./quantize/quantize_to.ts";
import type { Quantizer } from "./quantize/quantizers.ts";
import {
  ErrorSums,
  everySecond,
  keepRows,
  multiplyRows,
  quantizeRows,
  type RowEncoder,
  widenRows,
} from "./quantize/row_encoders.ts";

interface MatrixOrder {
  readonly rowOrder?: Runs;
  /** Number of rows of the checkpoint's matrix, if `rowOrder` selects only some. */
  readonly of?: number;
  readonly columnOrder?: Runs;
}

/** Shape of a tensor with one matrix per expert. */
export interface StackShape {
  readonly count: number;
  readonly rows: number;
  readonly columns: number;
}

/** The matrices that an encoder encodes: all `count` matrices of a tensor, or only that of `expert`. */
interface WeighedShape {
  /** Name of the tensor without `.weight`. */
  readonly name: string;
  /** Number of rows of each matrix. */
  readonly rows: number;
  readonly columns: number;
  readonly count?: number;
  readonly expert?: number;
}

/** Selects the rows of each expert. "even" is the first row of each pair. */
export type Take = "all" | "first half" | "second half" | "even" | "odd";

interface VectorChange {
  /** Function to apply to each value, before the order changes. */
  readonly map?: (value: number) => number;
  readonly order?: Runs;
  /** Shape of the tensor in ggml order; by default one dimension. */
  readonly shape?: readonly number[];
  /** Takes row `at` of a matrix with `of` rows. Undefined: the source is a vector. */
  readonly row?: { readonly at: number; readonly of: number };
}

/** Collects the tensors to write. `name` is GGUF's name; `module` and `tensor` are the checkpoint's. */
export class TensorList {
  readonly tensors: OutputTensor[] = [];

  constructor(
    private readonly checkpoint: Checkpoint,
    readonly finder: WeightFinder,
    private readonly quantize: Quantization | undefined,
  ) {}

  /** Adds the weight of a linear layer or an embedding. `name` and `module` lack `.weight`. */
  matrix(name: string, module: string, rows: number, columns: number, order: MatrixOrder = {}): void {
    const { of: sourceRows = rows } = order;
    const runs = order.columnOrder?.flat() ?? [columns];
    const [source] = this.#exactBlocks([this.finder.matrix(module, sourceRows, columns)], runs);
    const encoder = this.#encoder(source, { name, rows, columns }, { runs: order.columnOrder });
    const options = { name: `${name}.weight`, rows, columns, source, sourceRows, encoder, ...order };
    this.tensors.push(matrixTensor(this.checkpoint, options));
    this.#factors(name, [source]);
  }

  /** Adds a matrix made of consecutive parts: each part's rows are multiplied by its factor. */
  multiplied(
    name: string,
    module: string,
    columns: number,
    parts: readonly (readonly [rows: number, factor: number])[],
  ): void {
    const sourceRows = parts.reduce((sum, [rows]) => sum + rows, 0);
    const plain = parts.every(([, factor]) => factor === 1);
    if (plain) return this.matrix(name, module, sourceRows, columns);
    const source = this.finder.matrix(module, sourceRows, columns);
    const quantizer = this.quantize && quantizerOf(this.quantize.to, [columns]);
    const sums = new ErrorSums();
    const weights = quantizer && this.#weights(quantizer, { name, rows: sourceRows, columns });
    let start = 0;
    const tensors = parts.map(([rows, factor]) => {
      const encoder = quantizer
        ? quantizeRows(source, quantizer, { threads: this.quantize!.threads, sums, factor, weights })
        : multiplyRows(source, factor, sums);
      const rowOrder = [[start, rows]] as const;
      start += rows;
      const options = { name: `${name}.weight`, rows, columns, source, sourceRows, encoder, rowOrder };
      return matrixTensor(this.checkpoint, options);
    });
    this.tensors.push(joinTensors(tensors, [columns, sourceRows]));
  }

  /** Adds one linear layer per expert as a tensor of three dimensions. With `kept`, weights are never quantized. */
  experts(name: string, modules: readonly string[], rows: number, columns: number, kept = false): void {
    const sources = this.#exactBlocks(
      modules.map((module) => this.finder.matrix(module, rows, columns)),
      [columns],
      kept,
    );
    const other = sources.find(({ kind }) => kind !== sources[0].kind);
    if (other) {
      const detail = `must have the same format as the other experts, ${sources[0].kind} (got ${other.kind})`;
      refuse(other.weight.file, `tensor ${quote(other.weight.name)}`, detail);
    }
    const sums = new ErrorSums();
    const parts = sources.map((source, expert) => {
      const shape = { name, rows, columns, expert, count: sources.length };
      const encoder = kept ? keepRows(source, sums) : this.#encoder(source, shape, { sums });
      return matrixTensor(this.checkpoint, { name: `${name}.weight`, rows, columns, source, encoder });
    });
    this.tensors.push(stackTensors(parts));
    this.#factors(name, sources);
  }

  /**
   * Adds experts' weights from one tensor [count, of, columns], whose name is complete. Each expert
   * contributes `rows` rows from `start` on.
   */
  fusedExperts(
    name: string,
    tensor: string,
    rows: number,
    columns: number,
    { count, start = 0, of = rows }: {
      readonly count: number;
      readonly start?: number;
      readonly of?: number;
    },
  ): void {
    const weight = this.finder.floats(tensor, [count, of, columns]);
    const source: MatrixSource = { kind: weight.dtype as FloatType, weight };
    const sums = new ErrorSums();
    const parts = Array.from({ length: count }, (_, expert) =>
      matrixTensor(this.checkpoint, {
        name: `${name}.weight`,
        rows,
        columns,
        source,
        sourceRows: count * of,
        encoder: this.#encoder(source, { name, rows, columns, expert, count }, { sums }),
        rowOrder: [[expert * of + start, rows]],
      }));
    this.tensors.push(stackTensors(parts));
  }

  /**
   * Adds transposed float matrices of experts. In the source, each expert is a matrix [each, of]. Its columns
   * from `start` on become the `rows` rows, and its first `columns` rows become columns.
   */
  turned(
    name: string,
    source: MatrixSource,
    { count, rows, columns }: StackShape,
    { start = 0, of = rows, each = columns }: {
      readonly start?: number;
      readonly of?: number;
      readonly each?: number;
    } = {},
  ): void {
    const encoder = this.#encoder(source, { name, rows, columns, count });
    const options = { name: `${name}.weight`, rows, columns, source, encoder, count, start, of, each };
    this.tensors.push(turnedTensor(this.checkpoint, options));
  }

  /** Adds a matrix without its first `unread` rows. The matrix is small or sensitive, so it is never quantized. */
  table(name: string, module: string, rows: number, columns: number, unread = 0): void {
    const sourceRows = rows + unread;
    const source = this.finder.matrix(module, sourceRows, columns);
    this.tensors.push(
      matrixTensor(this.checkpoint, {
        name: `${name}.weight`,
        rows,
        columns,
        source,
        sourceRows,
        encoder: keepRows(source),
        rowOrder: unread > 0 ? [[unread, rows]] : undefined,
      }),
    );
  }

  /** Adds the rows `indexes` of a matrix of `of` rows. The rows are few, so they are never quantized. */
  rows(name: string, module: string, indexes: readonly number[], of: number, columns: number): void {
    const source = this.finder.matrix(module, of, columns);
    this.tensors.push(
      matrixTensor(this.checkpoint, {
        name: `${name}.weight`,
        rows: indexes.length,
        columns,
        source,
        sourceRows: of,
        encoder: keepRows(source),
        rowOrder: indexes.map((index) => [index, 1] as const),
      }),
    );
  }

  /**
   * Adds the selected rows of each expert from a tensor [experts, rows, columns], as one tensor of three dimensions.
   */
  stacked(
    name: string,
    source: MatrixSource,
    { count, rows, columns }: StackShape,
    take: Take = "all",
  ): void {
    const height = take === "all" ? rows : rows / 2;
    const paired = take === "even" || take === "odd";
    const encoder = this.#encoder(source, { name, rows: height, columns, count });
    const start = take === "second half" ? height : 0;
    const tensor = matrixTensor(this.checkpoint, {
      name: `${name}.weight`,
      rows: count * height,
      columns,
      source,
      sourceRows: count * (paired ? height : rows),
      encoder: paired ? everySecond(encoder, source, count * height, take === "even" ? 0 : 1) : encoder,
      rowOrder: paired
        ? undefined
        : Array.from({ length: count }, (_, expert) => [expert * rows + start, height] as const),
    });
    this.tensors.push({ ...tensor, shape: [columns, height, count] });
  }

  /**
   * Adds the last `rows` rows of each of `count` parts as a tensor of three dimensions. Each part has `of`
   * rows in the source.
   */
  lastRows(name: string, source: MatrixSource, { count, rows, columns }: StackShape, of: number): void {
    const tensor = matrixTensor(this.checkpoint, {
      name: `${name}.weight`,
      rows: count * rows,
      columns,
      source,
      sourceRows: count * of,
      encoder: this.#encoder(source, { name, rows, columns, count }),
      rowOrder: Array.from({ length: count }, (_, part) => [(part + 1) * of - rows, rows] as const),
    });
    this.tensors.push({ ...tensor, shape: [columns, rows, count] });
  }

  /** Adds one f32 vector per expert from [experts, length]: all its elements or every second one. */
  stackedVectors(
    name: string,
    tensor: string,
    count: number,
    length: number,
    take: "all" | "even" | "odd" = "all",
  ): void {
    const { floats, source } = this.#values(tensor, [count, length]);
    const step = take === "all" ? 1 : 2;
    const kept = floats.filter((_, i) => step === 1 || i % 2 === (take === "even" ? 0 : 1));
    this.tensors.push(vectorTensor(name, kept, source.dtype, [length / step, count]));
  }

  /** Adds a vector in f32. */
  vector(name: string, tensor: string, length: number, { map, order, shape, row }: VectorChange = {}): void {
    const { at, of } = row ?? { at: 0, of: 1 };
    const source = this.finder.floats(tensor, [of, length]);
    const bytes = new Uint8Array(source.byteLength / of);
    this.checkpoint.read(source, at * bytes.length, bytes);
    const floats = toFloats(source.dtype as FloatType, bytes);
    const mapped = map ? floats.map(map) : floats;
    this.tensors.push(vectorTensor(name, order ? inOrder(mapped, order) : mapped, source.dtype, shape));
  }

  /**
   * Adds each frame of a convolution over images [rows, 3, frames, side, side] as an f32 tensor. The names are
   * `NAME.weight`, `NAME.weight.1` and so on.
   */
  frames(
    name: string,
    tensor: string,
    { rows, frames, side }: { readonly rows: number; readonly frames: number; readonly side: number },
  ): void {
    const pixels = side ** 2;
    for (let frame = 0; frame < frames; frame++) {
      const from = (i: number) => (Math.floor(i / pixels) * frames + frame) * pixels + i % pixels;
      const part = frame === 0 ? "" : `.${frame}`;
      const shape = [side, side, 3, rows];
      this.reshaped(`${name}.weight${part}`, tensor, [rows, 3, frames, side, side], shape, from);
    }
  }

  /** Adds a tensor of shape `stored` in f32, with `shape` in ggml's order. `from` maps new indices to stored ones. */
  reshaped(
    name: string,
    tensor: string,
    stored: readonly number[],
    shape: readonly number[],
    from = (i: number) => i,
  ): void {
    const { floats, source } = this.#values(tensor, stored);
    const length = shape.reduce((product, n) => product * n);
    const values = Float32Array.from({ length }, (_, i) => floats[from(i)]);
    this.tensors.push(vectorTensor(name, values, source.dtype, shape));
  }

  /** Adds a matrix in f32, even when quantizing: a convolution's taps or a router. */
  floats(name: string, tensor: string, rows: number, columns: number, rowOrder?: Runs): void {
    const weight = this.finder.floats(tensor, [rows, columns]);
    const source: MatrixSource = { kind: weight.dtype as FloatType, weight };
    const encoder = widenRows(source.kind as FloatType);
    this.tensors.push(
      matrixTensor(this.checkpoint, { name, rows, columns, source, encoder, rowOrder }),
    );
  }

  /** Adds computed values that the checkpoint does not contain. */
  made(name: string, values: Float32Array): void {
    this.tensors.push(vectorTensor(name, values, "config.json"));
  }

  #values(tensor: string, shape: readonly number[]): { floats: Float32Array; source: SafeTensor } {
    const source = this.finder.floats(tensor, shape);
    const bytes = new Uint8Array(source.byteLength);
    this.checkpoint.read(source, 0, bytes);
    return { floats: toFloats(source.dtype as FloatType, bytes), source };
  }

  /** Adds the tensor `NAME.scale` with the factor of each NVFP4 matrix, unless all factors are 1. */
  #factors(name: string, sources: readonly MatrixSource[]): void {
    const factors = sources.map((source) => source.kind === "NVFP4" ? source.factor ?? 1 : 1);
    if (factors.every((factor) => factor === 1)) return;
    this.tensors.push(vectorTensor(`${name}.scale`, Float32Array.from(factors), "F32"));
  }

  /**
   * Returns the matrices as blocks of a GGUF type if all have exact blocks of the wanted type and the runs of columns
   * are whole blocks; else returns `sources`.
   */
  #exactBlocks(sources: MatrixSource[], runs: readonly number[], kept = false): MatrixSource[] {
    const blocks = sources.flatMap(({ weight }) => weight.blocks ?? []);
    const kind = blocks[0]?.kind;
    const wanted = kept || this.quantize === undefined || this.quantize.to.toUpperCase() === kind;
    const fits = blocks.length === sources.length && blocks.every((one) => one.kind === kind) &&
      runs.every((run) => run % layoutOf(kind).elements === 0);
    return wanted && fits ? blocks : sources;
  }

  /**
   * Returns the encoder for a matrix. A matrix that already has the wanted type keeps its bits. Each run of columns
   * keeps its order.
   */
  #encoder(
    source: MatrixSource,
    shape: WeighedShape,
    { runs, sums }: { readonly runs?: Runs; readonly sums?: ErrorSums } = {},
  ): RowEncoder {
    if (!this.quantize) return keepRows(source, sums);
    const { to, threads } = this.quantize;
    const quantizer = quantizerOf(to, runs?.flat() ?? [shape.columns]);
    if (!quantizer || source.kind === quantizer.type) return keepRows(source, sums);
    return quantizeRows(source, quantizer, { threads, sums, weights: this.#weights(quantizer, shape, runs) });
  }

  /** Returns the weights of a tensor's columns, in the source's order; undefined without an importance matrix. */
  #weights(
    { weighs }: Quantizer,
    { name, rows, columns, count = 1, expert }: WeighedShape,
    runs?: Runs,
  ): RowWeights | undefined {
    if (!weighs) return undefined;
    const all = this.quantize?.weights?.of(`${name}.weight`, columns, count);
    if (!all) return undefined;
    const values = expert === undefined ? all : all.subarray(expert * columns, (expert + 1) * columns);
    return { values: runs ? inSourceOrder(values, runs) : values, columns, rows };
  }
}
