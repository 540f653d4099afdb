/** Temporary folders with tiny checkpoints for tests, and their converted files. */

import { join } from "@std/path";
import {
  type CheckpointOptions,
  type TinyCheckpoint,
  tinyCheckpoint,
  writeCheckpoint,
} from "../testing/checkpoints.ts";
import { dequantize } from "../engine/backend/webgpu/kernels/testing_dequantize.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { GgufFile } from "../engine/gguf/types.ts";
import { convertCheckpoint, type ConvertOptions, type ConvertReport } from "./convert.ts";

export const MXFP4: CheckpointOptions = { model: "qwen3_5", weights: "MXFP4", layout: "mlx", seed: 1 };
export const BF16: CheckpointOptions = { ...MXFP4, weights: "BF16", layout: "hf" };

const made = new Map<string, TinyCheckpoint>();

/** Returns a copy that the caller may change. Values are generated once per set of options. */
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

  /** `change` spoils the checkpoint before it is written. */
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

  convert(options: Partial<ConvertOptions> = {}): Promise<ConvertReport> {
    return convertCheckpoint({ folder: this.path, out: this.out, ...options });
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

  /**
   * Returns a tensor's dequantized values, decoded after the formats' descriptions: F32, BF16, F16, MXFP4,
   * Q4_0, Q4_1, Q4_K, Q6_K or Q8_0.
   */
  values(name: string): Float32Array {
    const bytes = this.tensor(name).slice();
    const { type } = this.gguf.tensors.get(name)!;
    if (type === "F32") return new Float32Array(bytes.buffer);
    if (type === "F16") return new Float32Array(new Float16Array(bytes.buffer));
    if (type === "BF16") {
      return new Float32Array(Uint32Array.from(new Uint16Array(bytes.buffer), (half) => half << 16).buffer);
    }
    if (type === "Q4_K" || type === "Q6_K") {
      const [columns, rows] = this.gguf.tensors.get(name)!.shape;
      return Float32Array.from(dequantize(type, bytes, rows * columns));
    }
    const decode = BLOCKS[type]!;
    const out: number[] = [];
    for (let at = 0; at < bytes.length; at += decode.bytes) {
      const view = new DataView(bytes.buffer, at, decode.bytes);
      for (let i = 0; i < 32; i++) out.push(decode.value(view, i));
    }
    return Float32Array.from(out);
  }
}

interface BlockDecoder {
  readonly bytes: number;
  readonly value: (block: DataView, i: number) => number;
}

const nibble = (block: DataView, at: number, i: number) =>
  block.getUint8(at + i % 16) >> (i < 16 ? 0 : 4) & 15;
const SIGNED_E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Source: the block structs in ggml's ggml-common.h. */
const BLOCKS: Readonly<Record<string, BlockDecoder>> = {
  MXFP4: { bytes: 17, value: (b, i) => SIGNED_E2M1[nibble(b, 1, i)] * 2 ** (b.getUint8(0) - 127) },
  Q4_0: { bytes: 18, value: (b, i) => (nibble(b, 2, i) - 8) * b.getFloat16(0, true) },
  Q4_1: { bytes: 20, value: (b, i) => nibble(b, 4, i) * b.getFloat16(0, true) + b.getFloat16(2, true) },
  Q8_0: { bytes: 34, value: (b, i) => b.getInt8(2 + i) * b.getFloat16(0, true) },
};
