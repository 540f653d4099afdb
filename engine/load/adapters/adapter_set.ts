import { GgufError, quote } from "../../gguf/errors.ts";
import type { AdapterInfo } from "../../api/engine.ts";
import { MAX_ADAPTERS } from "../../api/request.ts";
import { modelName } from "../../models/folder.ts";
import type { OpenSource } from "../../gguf/byte_source.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { AdaptedRows, LowRankPair, PlanAdapters } from "../../plan/adapters.ts";
import type { PlanTensor } from "../../plan/values.ts";
import { type AdapterFile, openAdapter, refuseTensor } from "./adapter_file.ts";
import { readAsFloats } from "../../gguf/float_tensor.ts";
import type { AdapterChoice } from "./adapter_choice.ts";

/** Returns the adapters' names and scales. Throws GgufError if two adapters have the same name. */
function infosOf(choices: readonly AdapterChoice[], files: readonly AdapterFile[]): AdapterInfo[] {
  const names = new Set<string>();
  return choices.map(({ path, scale }, id) => {
    const name = modelName(path);
    if (names.has(name)) {
      throw new GgufError("GGUF_DUPLICATE", `two adapters have the name ${quote(name)}; rename a file`);
    }
    names.add(name);
    return { id, name, path, scale, fingerprint: files[id].fingerprint };
  });
}

/** Ranks are padded with zeros to a multiple of this number, so that each adapter begins with a whole panel of rows. */
const RANK_STEP = 16;

/** The adapters of a model, in the order of their ids. */
export class AdapterSet implements PlanAdapters {
  readonly tensors: ReadonlySet<string>;

  private constructor(readonly files: readonly AdapterFile[], readonly infos: readonly AdapterInfo[]) {
    this.tensors = new Set(files.flatMap(({ pairs }) => [...pairs.keys()]));
  }

  /** Reads the adapters' headers. Returns undefined without adapters. Throws GgufError that names the file. */
  static async open(
    choices: readonly AdapterChoice[],
    model: GgufFile,
    open?: OpenSource,
  ): Promise<AdapterSet | undefined> {
    if (choices.length === 0) return undefined;
    if (choices.length > MAX_ADAPTERS) {
      throw new GgufError(
        "GGUF_COUNT",
        `a model may have at most ${MAX_ADAPTERS} adapters (got ${choices.length})`,
      );
    }
    const files: AdapterFile[] = [];
    for (const { path } of choices) {
      files.push(
        await openAdapter(path, model, open).catch((error) => {
          if (!(error instanceof GgufError)) throw error;
          const reason = error.message.replace(/^[A-Z_]+:? /, "");
          throw new GgufError(error.code, reason, { field: `adapter ${quote(path)}` });
        }),
      );
    }
    return new AdapterSet(files, infosOf(choices, files));
  }

  get count(): number {
    return this.files.length;
  }

  pair(rows: AdaptedRows): LowRankPair {
    const { name, columns, first, rows: height, times } = rows;
    const ranks = this.files.map(({ pairs }) => pairs.get(name)?.rank ?? 0);
    const rank = Math.ceil(Math.max(...ranks) / RANK_STEP) * RANK_STEP;
    const part = `[${first}:${first + height}]${times === 1 ? "" : ` x ${times}`}`;
    return {
      rank,
      a: this.#tensor(`${name}.lora_a`, columns, rank, () => this.#a(name, columns, rank)),
      b: this.#tensor(`${name}.lora_b${part}`, rank, height, () => this.#b(rows, rank)),
    };
  }

  refuse(tensor: string): never {
    refuseTensor(tensor);
  }

  #tensor(name: string, columns: number, rows: number, floats: () => Promise<Float32Array>): PlanTensor {
    const { count } = this;
    const shape = [columns, rows, count];
    const path = this.files[0].file.path;
    return {
      info: { name, type: "F32", shape, path, offset: 0, byteLength: 4 * columns * rows * count },
      kind: "matrix",
      columns,
      rows: count * rows,
      experts: count,
      bytes: async () => new Uint8Array((await floats()).buffer),
    };
  }

  async #a(name: string, columns: number, rank: number): Promise<Float32Array> {
    const stacked = new Float32Array(this.count * rank * columns);
    for (const [i, { file, pairs }] of this.files.entries()) {
      const pair = pairs.get(name);
      if (pair) stacked.set(await readAsFloats(file, pair.a), i * rank * columns);
    }
    return stacked;
  }

  /** Returns all adapters' `b` of a tensor, multiplied by the factors of the products. Throws GgufError. */
  async #b({ name, first, rows, times }: AdaptedRows, rank: number): Promise<Float32Array> {
    const stacked = new Float32Array(this.count * rows * rank);
    for (const [i, { file, pairs }] of this.files.entries()) {
      const pair = pairs.get(name);
      if (!pair) continue;
      const values = await readAsFloats(file, pair.b);
      for (let row = 0; row < rows; row++) {
        const from = (first + row) * pair.rank;
        const to = (i * rows + row) * rank;
        for (let k = 0; k < pair.rank; k++) stacked[to + k] = values[from + k] * pair.factor * times;
      }
      if (stacked.subarray(i * rows * rank, (i + 1) * rows * rank).every(Number.isFinite)) continue;
      const detail = "the adapter's alpha or the model's own factor makes its numbers too large";
      const field = `tensor ${quote(pair.b.name)} of ${quote(file.path)}`;
      throw new GgufError("GGUF_DATA", detail, { field });
    }
    return stacked;
  }
}
