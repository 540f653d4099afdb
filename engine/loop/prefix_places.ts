import type { GenerateRequest } from "../api/request.ts";

/** Tokens per piece of a prompt: a few KV blocks, so that a long prompt has few pieces. */
const PIECE_TOKENS = 128;
/** Maximum number of remembered pieces: enough for more prompts than a machine's KV caches hold. */
const MOST_PIECES = 1 << 16;

/** Remembers which engine computed the prefixes of prompts, so that equal prefixes go to the same engine. */
export class PrefixPlaces {
  /** The engine of each piece, by the digest of the prompt up to the piece's end. The oldest entry comes first. */
  readonly #places = new Map<number, number>();

  /**
   * Returns the index of the engine for a request: the engine with the longest known prefix of the prompt. If no prefix
   * is known, or if that engine is full and another one has a smaller load, returns the engine with the least load. `load` is the
   * occupied share of each engine's places.
   */
  choose(
    { prompt, cacheSalt = "" }: Pick<GenerateRequest, "prompt" | "cacheSalt">,
    load: readonly number[],
  ): number {
    const least = Math.min(...load);
    const digests = digestsOf(prompt, cacheSalt);
    const known = digests.findLast((digest) => this.#places.has(digest));
    const place = known === undefined ? undefined : this.#places.get(known);
    const isBusy = place !== undefined && load[place] >= 1 && least < load[place];
    const chosen = place === undefined || isBusy ? load.indexOf(least) : place;
    for (const digest of digests) {
      this.#places.delete(digest);
      this.#places.set(digest, chosen);
    }
    for (const digest of this.#places.keys()) {
      if (this.#places.size <= MOST_PIECES) break;
      this.#places.delete(digest);
    }
    return chosen;
  }
}

/**
 * Returns the digest of each prefix that consists of whole pieces. Different prefixes rarely have equal digests; then a
 * request only misses a cached prefix. Tenants do not share prefixes, so the salt is part of the digest.
 */
function digestsOf(prompt: readonly number[], salt: string): number[] {
  let digest = 0;
  for (let i = 0; i < salt.length; i++) digest = mixed(digest, salt.charCodeAt(i));
  const digests = [];
  for (const [i, token] of prompt.entries()) {
    digest = mixed(digest, token);
    if ((i + 1) % PIECE_TOKENS === 0) digests.push(digest);
  }
  return digests;
}

/** Mixes a value into a digest of 32 bits (the mixer of MurmurHash3). */
function mixed(digest: number, value: number): number {
  let mixed = Math.imul(digest ^ value, 0x9e3779b1);
  mixed = Math.imul(mixed ^ mixed >>> 15, 0x85ebca6b);
  return (mixed ^ mixed >>> 13) + 1 | 0;
}
