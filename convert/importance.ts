/**
 * Importance matrices. They hold the sum of squared inputs of each column of the weight matrices over a text, so that a
 * quantizer can keep the important columns more exact. The file has llama.cpp's GGUF format. For each weight tensor
 * NAME it has NAME.in_sum2 [columns, matrices], the sums of squares, and NAME.counts [1, matrices], the numbers of
 * inputs.
 */
import { openGguf } from "../engine/gguf/reader.ts";
import { readFloats } from "../engine/gguf/float_tensor.ts";
import { GgufError, quote } from "../engine/gguf/errors.ts";
import { ConvertError } from "./errors.ts";
import { writeGguf } from "./write/gguf_writer.ts";
import { entry } from "./write/metadata.ts";
import { vectorTensor } from "./write/output_tensor.ts";
import { PartialFile } from "./write/partial_file.ts";

/** The inputs of a tensor's matrices: one matrix, or one per expert. */
export interface MatrixInputs {
  /** Sums of the squares of each column's inputs. */
  readonly sums: Float32Array; // [matrices * columns]
  /** Number of inputs of each matrix. */
  readonly counts: Float32Array; // [matrices]
}

/** The importance matrix of one calibration text. */
export interface ImportanceMatrix {
  /** Name of the text. */
  readonly dataset: string;
  readonly chunks: number;
  /** Number of tokens in a chunk. */
  readonly chunkTokens: number;
  /** Inputs by the tensor's name in the model's file. */
  readonly inputs: ReadonlyMap<string, MatrixInputs>;
}

const [SUMS, COUNTS] = [".in_sum2", ".counts"];

/** Writes an importance matrix as a GGUF file. Throws ConvertError if the file exists. */
export async function writeImportance(path: string, matrix: ImportanceMatrix): Promise<void> {
  const { dataset, chunks, chunkTokens, inputs } = matrix;
  const entries = [
    entry("general.type", "STRING", "imatrix"),
    entry("imatrix.datasets", "STRING", [dataset]),
    entry("imatrix.chunk_count", "UINT32", chunks),
    entry("imatrix.chunk_size", "UINT32", chunkTokens),
  ];
  const tensors = [...inputs].flatMap(([name, { sums, counts }]) => [
    vectorTensor(name + SUMS, sums, "tally", [sums.length / counts.length, counts.length]),
    vectorTensor(name + COUNTS, counts, "tally", [1, counts.length]),
  ]);
  using partial = await PartialFile.create(path);
  try {
    await writeGguf(partial.file, entries, tensors);
    await partial.complete();
  } catch (error) {
    await partial.discard();
    throw error;
  }
}

/** Weights of the columns of a model's matrices, read from an importance matrix. */
export class ColumnWeights {
  private constructor(
    private readonly path: string,
    private readonly means: ReadonlyMap<string, { readonly values: Float32Array; readonly count: number }>,
  ) {}

  /** Names of the tensors that `of` found in the file. */
  readonly used = new Set<string>();

  /**
   * Reads an importance matrix that compy or llama.cpp wrote. Throws ConvertError for any other file and GgufError for
   * a broken one.
   */
  static async read(path: string): Promise<ColumnWeights> {
    const file = await openGguf(path).catch((error) => {
      if (!(error instanceof GgufError) || error.code !== "GGUF_MAGIC") throw error;
      throw refused(path, "it is not a GGUF file; llama.cpp's older .dat format is not supported");
    });
    const means = new Map<string, { values: Float32Array; count: number }>();
    for (const info of file.tensors.values()) {
      if (!info.name.endsWith(SUMS)) continue;
      const name = info.name.slice(0, -SUMS.length);
      const other = file.tensors.get(name + COUNTS);
      const count = info.shape[1] ?? 1;
      if (info.type !== "F32" || other?.type !== "F32" || other.shape.reduce((a, b) => a * b, 1) !== count) {
        throw refused(
          path,
          `tensor ${quote(info.name)} must have F32 sums, and ${
            quote(name + COUNTS)
          } one F32 count per matrix`,
        );
      }
      const values = toMeans(await readFloats(file, info), await readFloats(file, other));
      if (!values) {
        throw refused(path, `tensor ${quote(info.name)} and its counts must be finite and at least 0`);
      }
      means.set(name, { values, count });
    }
    if (means.size === 0) throw refused(path, `it has no tensors named *${SUMS}`);
    return new ColumnWeights(path, means);
  }

  /**
   * Returns the mean squares of a tensor's inputs [matrices * columns]; undefined if the file has no entry for it.
   * Throws ConvertError if the entry has another shape.
   */
  of(tensor: string, columns: number, matrices: number): Float32Array | undefined {
    const found = this.means.get(tensor);
    if (found) this.used.add(tensor);
    if (!found || found.values.length === columns * matrices && found.count === matrices) {
      return found?.values;
    }
    const shape = `${found.count} x ${found.values.length / found.count}`;
    throw refused(this.path, `${quote(tensor)} has inputs of ${shape} values, not ${matrices} x ${columns}`);
  }
}

/**
 * Divides the sums by the counts in place and returns them; undefined if a number is negative or not finite. A matrix
 * without inputs gets equal weights.
 */
function toMeans(sums: Float32Array, counts: Float32Array): Float32Array | undefined {
  const columns = sums.length / counts.length;
  for (let i = 0; i < sums.length; i++) {
    const count = counts[Math.floor(i / columns)];
    if (!(sums[i] >= 0 && sums[i] < Infinity && count >= 0 && count < Infinity)) return undefined;
    sums[i] = count > 0 ? sums[i] / count : 1;
  }
  return sums;
}

function refused(path: string, detail: string): ConvertError {
  return new ConvertError(`Cannot use the importance matrix ${path}: ${detail}`);
}
