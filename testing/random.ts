/** Random numbers for tests. A seed gives the same integers and floats on every machine. */

/** Returns a seed from a text: FNV-1a. */
export function seedOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** Returns a new seed for each run of a test, and prints it, so that SEED can repeat the run. */
export function testSeed(): number {
  const seed = Number(Deno.env.get("SEED") ?? Date.now() % 2 ** 31);
  Deno.stderr.writeSync(new TextEncoder().encode(`SEED=${seed}\n`));
  return seed;
}

/** Count of normal numbers that are drawn together. */
const NORMALS = 4096;

/** xoshiro128**, seeded through a Weyl sequence. Source: Blackman and Vigna, "Scrambled linear generators" (2018). */
export class Random {
  readonly #state = new Uint32Array(4);

  constructor(seed: number) {
    for (let i = 0; i < 4; i++) this.#state[i] = mix(seed + Math.imul(i + 1, 0x9e3779b9));
  }

  /** Returns 32 random bits. */
  word(): number {
    const s = this.#state;
    const scrambled = Math.imul(s[1], 5);
    const result = Math.imul(scrambled << 7 | scrambled >>> 25, 9) >>> 0;
    const shifted = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = s[3] << 11 | s[3] >>> 21;
    return result;
  }

  /** Returns a number from 0 (inclusive) to 1 (exclusive). */
  unit(): number {
    return this.word() / 2 ** 32;
  }

  /** Returns an integer from 0 (inclusive) to `limit` (exclusive). */
  below(limit: number): number {
    return Math.floor(this.unit() * limit);
  }

  /**
   * Returns a nearly normal number, mean 0, variance 1: a sum of eight uniform half words. It uses no function with
   * machine-dependent rounding.
   */
  normal(): number {
    return normalOf(this.word(), this.word(), this.word(), this.word());
  }

  bytes(length: number): Uint8Array<ArrayBuffer> {
    const words = this.#fill(new Uint32Array(Math.ceil(length / 4)));
    return new Uint8Array(words.buffer, 0, length);
  }

  /** Fills the array with values of `normal`, times `scale`. Fast, because a model has millions. */
  normals<T extends Float32Array | Float16Array>(out: T, scale: number): T {
    for (let start = 0; start < out.length; start += NORMALS) {
      const end = Math.min(start + NORMALS, out.length);
      const words = this.#fill(new Uint32Array(4 * (end - start)));
      for (let i = start, k = 0; i < end; i++, k += 4) {
        out[i] = scale * normalOf(words[k], words[k + 1], words[k + 2], words[k + 3]);
      }
    }
    return out;
  }

  /** Like `word`, with the state in local variables. */
  #fill<T extends Uint32Array>(words: T): T {
    let [a, b, c, d] = this.#state;
    for (let i = 0; i < words.length; i++) {
      const scrambled = Math.imul(b, 5);
      words[i] = Math.imul(scrambled << 7 | scrambled >>> 25, 9);
      const shifted = b << 9;
      c ^= a;
      d ^= b;
      b ^= c;
      a ^= d;
      c ^= shifted;
      d = d << 11 | d >>> 21;
    }
    this.#state.set([a, b, c, d]);
    return words;
  }
}

/**
 * Returns a nearly normal number from eight half words: eight numbers below 2^16 have the mean 8 * 32767.5 and the
 * variance 8 * 2^32 / 12.
 */
function normalOf(a: number, b: number, c: number, d: number): number {
  const low = (a & 0xffff) + (b & 0xffff) + (c & 0xffff) + (d & 0xffff);
  const high = (a >>> 16) + (b >>> 16) + (c >>> 16) + (d >>> 16);
  return (low + high - 262_140) / 53_510;
}

/** Returns the finaliser of MurmurHash3 applied to a word. */
function mix(word: number): number {
  word = Math.imul(word ^ word >>> 16, 0x85ebca6b);
  word = Math.imul(word ^ word >>> 13, 0xc2b2ae35);
  return (word ^ word >>> 16) >>> 0;
}
