import { delay } from "@std/async/delay.js";
import type { CacheParts } from "./backend/backend.ts";
import type { PartKind } from "./prompt_cache/types.ts";
import type { Restore } from "./sequence.ts";

/** Bytes that are copied into or out of the model between two steps. */
export const MOST_COPIED = 16 * 2 ** 20;
/** A part of a prompt that is not there after so long is computed. */
const READ_LIMIT_MS = 2000;

/** What is read, and then copied into the model, at once. */
export interface Piece extends CacheParts {
  readonly parts: readonly { readonly position: number; readonly kind: PartKind }[];
  /** With it all blocks before this one are there. */
  readonly end: number;
  readonly last: boolean;
}

/** Cuts up what a sequence waits for: parts in the order of their positions, the state at last. */
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
      // Parts of one position stay together: what is before it is whole then.
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

/** Undefined where it takes too long. */
export async function inTime<T>(result: Promise<T>): Promise<T | undefined> {
  const ended = new AbortController();
  const late = delay(READ_LIMIT_MS, { signal: ended.signal }).then(() => undefined, () => undefined);
  try {
    return await Promise.race([result, late]);
  } finally {
    ended.abort();
  }
}
