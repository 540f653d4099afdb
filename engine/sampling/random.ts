/** xoshiro128** (Blackman and Vigna), seeded by splitmix32. Each sequence has its own 128 bits of state. */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** `seed`: any safe integer; all its bits matter. */
  constructor(seed: number) {
    const low = splitmix(seed | 0, 0x9e3779b9);
    const high = splitmix(Math.floor(seed / 2 ** 32) | 0, 0x85ebca6b);
    this.#a = low() ^ high();
    this.#b = low() ^ high();
    this.#c = low() ^ high();
    this.#d = (low() ^ high()) | 1; // the state is never all zero
  }

  static unpredictable(): Random {
    const [low, high] = crypto.getRandomValues(new Uint32Array(2));
    return new Random((high & 0xfffff) * 2 ** 32 + low);
  }

  /** Returns a uniform number in [0, 1), in steps of 2^-32. */
  next(): number {
    const product = Math.imul(this.#b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9);
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return (result >>> 0) / 2 ** 32;
  }
}

/** splitmix32: returns a generator of well-mixed numbers from a counter. */
function splitmix(state: number, increment: number): () => number {
  return () => {
    state = (state + increment) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return z ^ (z >>> 15);
  };
}
