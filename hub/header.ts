import { MAX_HEADER_BYTES } from "../engine/gguf/cursor.ts";
import { GgufError } from "../engine/gguf/errors.ts";
import { parseGguf } from "../engine/gguf/reader.ts";
import type { GgufFile } from "../engine/gguf/types.ts";
import { freeMemory, measureModel } from "../engine/load/load.ts";
import { isTower } from "./choices.ts";
import { PullError } from "./errors.ts";
import { quote } from "./names.ts";
import type { Transfer } from "./transfer.ts";
import type { Piece } from "./unfinished.ts";

/** Number of a file's bytes to read first. Headers with large vocabularies have about 6 MB. */
const FIRST_BYTES = 2 ** 20;
/** Names of small tensors that affect the computation. They are read with the header. */
const READ_WITH_HEADER = /^rope_(freqs|factors_long|factors_short)\.weight$/;
const MOST_FACTORS = 2 ** 20;

/** Memory needs of a model, in bytes. */
export interface Needs {
  readonly weights: number;
  /** Bytes of one sequence's KV cache, recurrent states, and the activations of a step. */
  readonly rest: number;
  /** Context length in tokens of the sequence in `rest`. */
  readonly contextLength: number;
}

/** The verdict from a header: the model's memory needs, or the reason that compy cannot run it. */
export type Verdict = { readonly needs: Needs } | { readonly refusal: string };

/** Returns the bytes that a model may take on this machine; undefined if unknown. */
export const machineMemory = (): number | undefined => freeMemory();

/**
 * Fetches only the pieces' headers and lets the engine judge them. Throws PullError for a file that is not a
 * model.
 */
export async function judge(transfer: Transfer, pieces: readonly Piece[]): Promise<Verdict> {
  const files = [...Map.groupBy(pieces, ({ path }) => path)];
  for (const [path, parts] of files) await fetchHeader(transfer, path, parts);
  try {
    // Weights are counted with their size in the file, which they also need on a GPU and packed for the CPU.
    const { memory, contextLength } = await measureModel({
      model: files[0][0],
      parallel: 1,
      backend: "webgpu",
    });
    const rest = memory.kv + memory.states + memory.activations;
    const towers = files.filter(([path]) => isTower(path)).map(([, parts]) => fileSize(parts));
    const weights = towers.reduce((sum, bytes) => sum + bytes, memory.weights);
    return { needs: { weights, rest, contextLength } };
  } catch (error) {
    if (!(error instanceof GgufError)) throw error;
    return { refusal: error.message };
  }
}

async function fetchHeader(transfer: Transfer, path: string, parts: readonly Piece[]): Promise<void> {
  const ensure = async (start: number, end: number) => {
    for (const part of parts) {
      const { offset, size } = part.remote;
      const [from, to] = [Math.max(0, start - offset), Math.min(end - offset, size ?? Infinity)];
      if (from < to) await transfer.ensure(part, from, to);
    }
  };
  await ensure(0, FIRST_BYTES);
  const size = fileSize(parts);
  await Deno.truncate(path, size); // a sparse file: full length without blocks
  const header = await growHeader(path, size, ensure);
  for (const { name, offset, byteLength } of header.tensors.values()) {
    if (READ_WITH_HEADER.test(name) && byteLength <= MOST_FACTORS) await ensure(offset, offset + byteLength);
  }
}

/** Reads more of a file until its header is complete. */
async function growHeader(
  path: string,
  size: number,
  ensure: (start: number, end: number) => Promise<void>,
): Promise<GgufFile> {
  const most = Math.min(size, MAX_HEADER_BYTES);
  for (let length = Math.min(most, FIRST_BYTES);; length = Math.min(most, 4 * length)) {
    await ensure(0, length);
    try {
      return parseGguf(await readPrefix(path, length), size, path);
    } catch (error) {
      if (!(error instanceof GgufError)) throw error;
      if (error.code === "GGUF_TRUNCATED" && length < most) continue;
      const name = quote(path.slice(path.lastIndexOf("/") + 1));
      throw new PullError("PULL_MODEL", `${name} is not a readable model: ${error.message}`, {
        cause: error,
      });
    }
  }
}

async function readPrefix(path: string, length: number): Promise<Uint8Array> {
  using file = await Deno.open(path);
  const bytes = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    const count = await file.read(bytes.subarray(done));
    if (count === null) break;
    done += count;
  }
  return bytes.subarray(0, done);
}

/** Returns the bytes of the local file that consists of the pieces. */
export function fileSize(parts: readonly Piece[]): number {
  return parts.reduce((end, { remote, size }) => Math.max(end, remote.offset + size!), 0);
}
