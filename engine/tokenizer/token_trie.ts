import { PairTable } from "./pair_table.ts";
import { vocabError } from "./vocabulary.ts";

/** Each UTF-16 unit of a token may be a node of its own. 262,144 tokens of 16 make 2^22. */
const MAX_UNITS = 1 << 23;

/** No node, and no token. */
export const NONE = -1;

const ROOT = 0;

/** Texts of tokens as a tree of UTF-16 units, in plain arrays: a vocabulary has up to millions of nodes. */
export class TokenTrie {
  readonly #children: PairTable;
  readonly #tokens: Int32Array; // [nodes]

  /** Of equal texts the last counts. Throws GgufError(GGUF_VOCAB) where they are too long together. */
  constructor(tokens: Iterable<readonly [text: string, id: number]>) {
    const all = [...tokens];
    const units = all.reduce((sum, [text]) => sum + text.length, 0);
    if (units > MAX_UNITS) {
      throw vocabError("tokens", `must have at most ${MAX_UNITS} characters in all (got ${units})`);
    }
    this.#children = new PairTable(all.length);
    this.#tokens = new Int32Array(units + 1).fill(NONE);
    let nodes = 1;
    for (const [text, id] of all) {
      let node = ROOT;
      for (let i = 0; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        const found = this.#child(node, unit);
        if (found === NONE) this.#children.add(node, unit, 0, nodes);
        node = found === NONE ? nodes++ : found;
      }
      this.#tokens[node] = id;
    }
  }

  /** The node that a unit leads to, or NONE. */
  #child(node: number, unit: number): number {
    const slot = this.#children.find(node, unit);
    return slot < 0 ? NONE : this.#children.merged[slot];
  }

  /** Hands on each token that stands in the text from `start` on, and where it ends; the shortest first. */
  tokensFrom(text: string, start: number, take: (token: number, end: number) => void): void {
    let node = ROOT;
    for (let i = start; i < text.length; i++) {
      node = this.#child(node, text.charCodeAt(i));
      if (node === NONE) return;
      const token = this.#tokens[node];
      if (token !== NONE) take(token, i + 1);
    }
  }
}
