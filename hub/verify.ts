import { createHash } from "node:crypto";
import { PullError } from "./errors.ts";
import { quote } from "./names.ts";
import type { Piece } from "./unfinished.ts";

const CHUNK = 4 * 2 ** 20;

/** Returns the hex SHA-256 of a piece on disk. */
export async function hashPiece(
  { path, remote, size }: Piece,
  onBytes: (count: number) => void,
  signal?: AbortSignal,
): Promise<string> {
  using file = await Deno.open(path);
  await file.seek(remote.offset, Deno.SeekMode.Start);
  const hash = createHash("sha256");
  const chunk = new Uint8Array(CHUNK);
  for (let left = size!; left > 0;) {
    signal?.throwIfAborted();
    const count = await file.read(chunk.subarray(0, Math.min(CHUNK, left)));
    if (count === null) {
      throw new PullError("PULL_CHECKSUM", `${quote(remote.file)} became shorter while it was checked`);
    }
    hash.update(chunk.subarray(0, count));
    onBytes(count);
    left -= count;
  }
  return hash.digest("hex");
}
