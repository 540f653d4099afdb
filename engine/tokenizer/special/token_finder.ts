import { type Paced, STEPS_PER_OFFER } from "../../pacing/pauses.ts";

/** Part of a text: a token, or plain text between two tokens (`token` undefined). */
export interface Fragment {
  readonly start: number;
  readonly end: number;
  readonly token: number | undefined;
}

/** A node of the trie. Most nodes have at most one child, so a map is created only for the second. */
class Node {
  token: number | undefined = undefined;
  /** Number of the cluster of overlapping occurrences in which the token was last found. */
  cluster = 0;
  #unit = -1;
  #only: Node | undefined = undefined;
  #more: Map<number, Node> | undefined = undefined;

  child(unit: number): Node | undefined {
    return unit === this.#unit ? this.#only : this.#more?.get(unit);
  }

  makeChild(unit: number): Node {
    const found = this.child(unit);
    if (found) return found;
    const made = new Node();
    if (this.#only) (this.#more ??= new Map()).set(unit, made);
    else [this.#unit, this.#only] = [unit, made];
    return made;
  }
}

interface Occurrence {
  readonly start: number;
  readonly end: number;
  readonly token: number;
}

/**
 * Finds tokens in texts. Among overlapping occurrences the longest token wins, then the lower id, then the
 * leftmost. This is llama.cpp's order, which searches for one token after another, longest first.
 */
export class TokenFinder {
  readonly #root = new Node();
  readonly #texts: ReadonlyMap<number, string>;
  /** Each token's rank in the order of precedence. */
  readonly #rank = new Map<number, number>();
  /** Whether any token begins with a UTF-16 unit. Most characters of a text need only this check. */
  readonly #begins = new Uint8Array(0x10000);
  #cluster = 1;

  /** `tokens` maps ids to the texts to find; empty texts are ignored. */
  constructor(tokens: ReadonlyMap<number, string>) {
    this.#texts = tokens;
    const utf8 = new TextEncoder();
    const lengths = new Map([...tokens].map(([id, text]) => [id, utf8.encode(text).length]));
    const order = [...tokens.keys()].sort((a, b) => lengths.get(b)! - lengths.get(a)! || a - b);
    for (const [rank, id] of order.entries()) this.#rank.set(id, rank);
    for (const [id, text] of tokens) {
      if (text !== "") this.#insert(text, id);
    }
  }

  #insert(text: string, id: number): void {
    this.#begins[text.charCodeAt(0)] = 1;
    let node = this.#root;
    for (let i = 0; i < text.length; i++) node = node.makeChild(text.charCodeAt(i));
    node.token = id;
  }

  /** Returns the start of each token, overlapping ones included, in ascending order. */
  *starts(text: string): Paced<number[]> {
    const cluster = this.#cluster++;
    const starts: number[] = [];
    for (let i = 0; i < text.length; i++) {
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      if (this.#begins[text.charCodeAt(i)] && this.#visit(text, i, [], cluster) > i) starts.push(i);
    }
    return starts;
  }

  /** Splits the text into tokens and the text between them, in order. */
  *split(text: string): Paced<Fragment[]> {
    const fragments: Fragment[] = [];
    let done = 0;
    // Overlapping occurrences form a cluster; clusters are processed independently.
    let clusterStart = 0;
    let clusterEnd = 0;
    let present: number[] = [];
    // During a pause, another text may have taken the next cluster number.
    let cluster = this.#cluster++;
    const closeCluster = () => {
      for (const found of this.#choose(text, clusterStart, clusterEnd, present)) {
        if (found.start > done) fragments.push({ start: done, end: found.start, token: undefined });
        fragments.push(found);
        done = found.end;
      }
      present = [];
      cluster = this.#cluster++;
    };
    for (let i = 0; i < text.length; i++) {
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      if (!this.#begins[text.charCodeAt(i)]) continue;
      if (i >= clusterEnd && present.length > 0) closeCluster();
      const end = this.#visit(text, i, present, cluster);
      if (end === i) continue;
      if (i >= clusterEnd) clusterStart = i;
      clusterEnd = Math.max(clusterEnd, end);
    }
    if (present.length > 0) closeCluster();
    if (done < text.length) fragments.push({ start: done, end: text.length, token: undefined });
    return fragments;
  }

  /**
   * Adds the tokens at `index` to `present`, unless the cluster already has them. Returns the end of the longest token,
   * or `index`.
   */
  #visit(text: string, index: number, present: number[], cluster: number): number {
    let end = index;
    let node: Node | undefined = this.#root;
    for (let i = index; i < text.length; i++) {
      node = node.child(text.charCodeAt(i));
      if (!node) break;
      if (node.token === undefined) continue;
      end = i + 1;
      if (node.cluster === cluster) continue;
      node.cluster = cluster;
      present.push(node.token);
    }
    return end;
  }

  /**
   * Returns the winning occurrences in `text[start, end)`, in order. Only the tokens in `present` occur
   * there.
   */
  #choose(text: string, start: number, end: number, present: readonly number[]): Occurrence[] {
    const cluster = text.slice(start, end);
    const taken = new Uint8Array(cluster.length);
    const chosen: Occurrence[] = [];
    for (const token of present.toSorted((a, b) => this.#rank.get(a)! - this.#rank.get(b)!)) {
      const tokenText = this.#texts.get(token)!;
      const { length } = tokenText;
      for (let i = cluster.indexOf(tokenText); i >= 0;) {
        let from = i + length;
        // Earlier tokens are at least as long, so an overlap always covers one end of this occurrence.
        if (taken[i] || taken[from - 1]) {
          if (taken[i]) from = i;
          while (taken[from]) from++;
        } else {
          taken.fill(1, i, from);
          chosen.push({ start: start + i, end: start + from, token });
        }
        i = cluster.indexOf(tokenText, from);
      }
    }
    return chosen.sort((a, b) => a.start - b.start);
  }
}
