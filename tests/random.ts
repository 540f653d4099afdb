/** Random numbers for tests: a seed gives the same ones on every machine, integers and floats alike. */

/** A seed from a text: FNV-1a. */
export function seedOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** xoshiro128**, seeded through a Weyl sequence. Source: Blackman and Vigna, "Scrambled linear generators" (2018). */
export class Random {
  readonly #state = new Uint32Array(4);

  constructor(seed: number) {
    for (let i = 0; i < 4; i++) this.#state[i] = mix(seed + Math.imul(i + 1, 0x9e3779b9));
  }

  /** 32 random bits. */
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

  /** In 0 (inclusive) to 1 (exclusive). */
  unit(): number {
    return this.word() / 2 ** 32;
  }

  /** An integer in 0 (inclusive) to `limit` (exclusive). */
  below(limit: number): number {
    return Math.floor(this.unit() * limit);
  }

  /** Mean 0, variance 1, nearly normal: eight uniform halves of words, added. No function that rounds by machine. */
  normal(): number {
    let sum = 0;
    for (let i = 0; i < 4; i++) {
      const word = this.word();
      sum += (word & 0xffff) + (word >>> 16);
    }
    // Eight numbers below 2^16: mean 8 * 32767.5, variance 8 * 2^32 / 12.
    return (sum - 262_140) / 53_510;
  }

  bytes(length: number): Uint8Array<ArrayBuffer> {
    const words = new Uint32Array(Math.ceil(length / 4));
    for (let i = 0; i < words.length; i++) words[i] = this.word();
    return new Uint8Array(words.buffer, 0, length);
  }
}

/** The finaliser of MurmurHash3. */
function mix(word: number): number {
  word = Math.imul(word ^ word >>> 16, 0x85ebca6b);
  word = Math.imul(word ^ word >>> 13, 0xc2b2ae35);
  return (word ^ word >>> 16) >>> 0;
}
