import { MAX_ROWS } from "../engine/load/size.ts";
import { type TalliedInput, tallyInputs } from "../engine/plan/tallied.ts";
import { ChunkModel, type ChunkOptions, chunksOf } from "./chunks.ts";

export interface CollectOptions extends ChunkOptions {
  /** Called after each chunk. */
  readonly onChunk?: (done: number, total: number) => void;
}

/** Summed inputs of a tensor's matrices: one matrix, or one per expert. */
interface MatrixInputs {
  /** Sums of the squares of each column's inputs. */
  readonly sums: Float32Array; // [matrices * columns]
  /** Number of inputs of each matrix. */
  readonly counts: Float32Array; // [matrices]
}

export interface CollectedInputs {
  readonly model: string;
  readonly chunkTokens: number;
  /** Number of complete chunks, and number of chunks in the text. They differ if `signal` ended the run. */
  readonly chunks: number;
  readonly wanted: number;
  /** Inputs by the tensor's name in the model's file. */
  readonly inputs: ReadonlyMap<string, MatrixInputs>;
  /** Number of matrices without inputs: those of experts that no token chose. */
  readonly unused: number;
}

/**
 * Computes a text, chunk by chunk, and adds up the squares of the inputs of every matrix in the model's layers. Throws
 * the errors of loading a model, and Error for a text shorter than a chunk.
 */
export async function collectInputs(options: CollectOptions): Promise<CollectedInputs> {
  const { chunkTokens, signal, onChunk = () => {} } = options;
  let tallied: readonly TalliedInput[] = [];
  const model = await ChunkModel.open(options, (plan) => {
    const changed = tallyInputs(plan);
    tallied = changed.inputs;
    return changed.plan;
  });
  try {
    const chunks = chunksOf(model.tokenizer, options);
    const sums = tallied.map((input) => new Sums(input));
    let done = 0;
    for (const chunk of chunks) {
      for (let from = 0; from < chunk.length && !signal?.aborted; from += MAX_ROWS) {
        const to = Math.min(chunk.length, from + MAX_ROWS);
        const { tallies } = await model.step(chunk, from, to, []);
        let at = 0;
        for (const sum of sums) at = sum.add(tallies!, at, to - from);
      }
      if (signal?.aborted) break;
      onChunk(++done, chunks.length);
    }
    const inputs = new Map(
      sums.flatMap((sum) => sum.input.names.map((name) => [name, sum.result()] as const)),
    );
    const unused = [...inputs.values()].reduce(
      (n, { counts }) => n + counts.filter((x) => x === 0).length,
      0,
    );
    return { model: model.name, chunkTokens, chunks: done, wanted: chunks.length, inputs, unused };
  } finally {
    model.close();
  }
}

/** Running sums of one tallied input, in double precision. */
class Sums {
  readonly #sums: Float64Array;
  readonly #counts: Float64Array;

  constructor(readonly input: TalliedInput) {
    this.#sums = new Float64Array(input.count * input.columns);
    this.#counts = new Float64Array(input.count);
  }

  /** Adds a step's tallies from index `at` on. Returns the index after them. */
  add(tallies: Float32Array, at: number, rows: number): number {
    for (let i = 0; i < this.#sums.length; i++) this.#sums[i] += tallies[at++];
    for (let i = 0; i < this.#counts.length; i++) {
      this.#counts[i] += this.input.counted ? tallies[at++] : rows;
    }
    return at;
  }

  result(): MatrixInputs {
    return { sums: Float32Array.from(this.#sums), counts: Float32Array.from(this.#counts) };
  }
}
