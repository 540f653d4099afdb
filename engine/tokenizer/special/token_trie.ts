import { PairTable } from "../pair_table.ts";
import { vocabError } from "../vocabulary.ts";

/** Maximum UTF-16 units of all tokens; each may need a node. 262,144 tokens of 16 units need 2^22. */
const MAX_UNITS = 1 << 23;

/** Value for "no node" and "no token". */
export const NONE = -1;

const ROOT = 0;

/**
 * A trie of token texts over UTF-16 units, in typed arrays, because a vocabulary has up to millions of nodes.
 */
export class TokenTrie {
  readonly #children: PairTable;
  readonly #tokens: Int32Array; // [nodes]

  /** Builds the trie; the last of equal texts wins. Throws GgufError(GGUF_VOCAB) if the texts are too long in total. */
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

  /** Returns the child of a node for a unit, or NONE. */
  #child(node: number, unit: number): number {
    const slot = this.#children.find(node, unit);
    return slot < 0 ? NONE : this.#children.merged[slot];
  }

  /** Calls `take` with each token at `start` and its end, shortest first. */
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
