import { delay } from "@std/async/delay.js";
import type { CacheParts } from "../backend/backend.ts";
import type { PartKind } from "./disk/types.ts";
import type { Restore } from "../schedule/sequence.ts";

/** Maximum bytes copied into or out of the KV cache between two steps. */
export const MOST_COPIED = 16 * 2 ** 20;
/** Milliseconds after which a prefix part that has not been read from disk is computed instead. */
const READ_LIMIT_MS = 2000;

/** Parts of a prefix that are read together and then copied into the KV cache together. */
export interface Piece extends CacheParts {
  readonly parts: readonly { readonly position: number; readonly kind: PartKind }[];
  /** Block position up to which the cache is complete after this piece was copied. */
  readonly end: number;
  readonly last: boolean;
}

/**
 * Splits the prefix parts that a sequence waits for into pieces, ordered by position, with the recurrent state last.
 */
export function* piecesOf(
  { parts, end, slot }: Restore,
  bytesOf: (kind: PartKind) => number,
): Iterable<Piece> {
  const state = slot === undefined ? [] : [{ position: end - 1, kind: "state" as const, place: slot }];
  const all = [...parts, ...state];
  for (let first = 0, next = 0; first < all.length; first = next) {
    let bytes = 0;
    do {
      bytes += bytesOf(all[next].kind);
      next++;
      // Parts of the same position stay in one piece, so that all earlier positions are complete.
    } while (next < all.length && (bytes < MOST_COPIED / 2 || all[next].position === all[next - 1].position));
    const piece = all.slice(first, next);
    yield {
      parts: piece,
      blocks: piece.flatMap(({ kind, place }) => kind === "state" ? [] : { group: kind, block: place }),
      slots: piece.flatMap(({ kind, place }) => kind === "state" ? place : []),
      end: next === all.length ? end : all[next].position,
      last: next === all.length,
    };
  }
}

/** Resolves to the value of `result`, or to undefined when the read takes too long. */
export async function inTime<T>(result: Promise<T>): Promise<T | undefined> {
  const ended = new AbortController();
  const late = delay(READ_LIMIT_MS, { signal: ended.signal }).then(() => undefined, () => undefined);
  try {
    return await Promise.race([result, late]);
  } finally {
    ended.abort();
  }
}
