/** Temporary folders with tiny checkpoints for tests, and their converted files. */

import { join } from "@std/path";
import {
  type CheckpointOptions,
  type TinyCheckpoint,
  tinyCheckpoint,
  writeCheckpoint,
} from "../testing/checkpoints.ts";
import { dequantize } from "../testing/synth/weights.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { GgufFile } from "../engine/gguf/types.ts";
import { convertCheckpoint, type ConvertOptions, type ConvertReport } from "./convert.ts";

export const MXFP4: CheckpointOptions = { model: "qwen3_5", weights: "MXFP4", layout: "mlx", seed: 1 };
export const BF16: CheckpointOptions = { ...MXFP4, weights: "BF16", layout: "hf" };

const made = new Map<string, TinyCheckpoint>();

/** Returns a copy of a test checkpoint that the caller may change. Values are generated once per set of options. */
function fresh(options: CheckpointOptions): TinyCheckpoint {
  const key = JSON.stringify(options);
  const known = made.get(key) ?? tinyCheckpoint(options);
  made.set(key, known);
  return structuredClone(known);
}

/** A checkpoint in a temporary folder, which disposal removes. */
export class CheckpointFolder implements AsyncDisposable {
  readonly #root: string;

  private constructor(root: string, readonly checkpoint: TinyCheckpoint) {
    this.#root = root;
  }

  /** Writes a test checkpoint. `change` modifies it before writing. */
  static async make(
    options: CheckpointOptions,
    change: (checkpoint: TinyCheckpoint) => void = () => {},
  ): Promise<CheckpointFolder> {
    const folder = new CheckpointFolder(
      await Deno.makeTempDir({ prefix: "compy-convert-" }),
      fresh(options),
    );
    change(folder.checkpoint);
    await Deno.mkdir(folder.path);
    await Deno.mkdir(join(folder.#root, "out"));
    await writeCheckpoint(folder.path, folder.checkpoint);
    return folder;
  }

  /** Path of the checkpoint's folder. */
  get path(): string {
    return join(this.#root, "tiny");
  }

  /** Path of the converted file. */
  get out(): string {
    return join(this.#root, "out", "tiny.gguf");
  }

  file(name: string): string {
    return join(this.path, name);
  }

  /** Converts the checkpoint, by default with one thread: starting others takes longer than quantizing small models. */
  convert(options: Partial<ConvertOptions> = {}): Promise<ConvertReport> {
    return convertCheckpoint({ folder: this.path, out: this.out, threads: 1, ...options });
  }

  /** Returns the file names in the output folder. */
  leftBehind(): string[] {
    return [...Deno.readDirSync(join(this.#root, "out"))].map(({ name }) => name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.#root, { recursive: true });
  }
}

/** A written file and the bytes of its tensors. */
export class Written {
  private constructor(readonly gguf: GgufFile, readonly bytes: Uint8Array) {}

  static async read(path: string): Promise<Written> {
    return new Written(await openGguf(path), await Deno.readFile(path));
  }

  tensor(name: string): Uint8Array {
    const { offset, byteLength } = this.gguf.tensors.get(name)!;
    return this.bytes.subarray(offset, offset + byteLength);
  }

  /** Returns a tensor's dequantized values. */
  values(name: string): Float32Array {
    const { type, shape } = this.gguf.tensors.get(name)!;
    return Float32Array.from(
      dequantize(type, this.tensor(name), shape.reduce((product, n) => product * n, 1)),
    );
  }
}
