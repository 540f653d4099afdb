/** Automata of the regular parts of GBNF grammars, to find out where a lexer would read too far. */

import { type CharacterSet, contains, meet, NOTHING, union } from "./character_set.ts";
import type { Gbnf } from "./gbnf.ts";

/** Maximum characters of an analyzed expression. For a larger one, the lexer is assumed to read too far. */
const MAX_POSITIONS = 400;
const MAX_STATES = 4000;

export interface Automaton {
  /** The characters with which a text of the automaton may begin. */
  readonly first: CharacterSet;
  /**
   * Returns whether a complete text of this automaton is a prefix of a text of `other` that continues with a character
   * in `follow`.
   */
  readsOnIn(other: Automaton, follow: CharacterSet): boolean;
}

interface Positions {
  readonly nullable: boolean;
  readonly first: readonly number[];
  readonly last: readonly number[];
}

/** Builds a Glushkov automaton: each class of the expression is a position with a set of positions that may follow. */
export function automatonOf(node: Gbnf, rules: ReadonlyMap<string, Gbnf>): Automaton {
  return new Glushkov(node, rules);
}

class TooLarge extends Error {}

class Glushkov implements Automaton {
  readonly first: CharacterSet;
  readonly #classes: CharacterSet[] = [];
  readonly #follow: Set<number>[] = [];
  readonly #start: readonly number[] = [];
  readonly #ends: Set<number> = new Set();
  readonly #tooLarge: boolean = false;

  constructor(node: Gbnf, private readonly rules: ReadonlyMap<string, Gbnf>) {
    try {
      const { first, last } = this.#positions(node);
      this.#start = first;
      this.#ends = new Set(last);
    } catch (error) {
      if (!(error instanceof TooLarge)) throw error;
      this.#tooLarge = true;
    }
    this.first = this.#tooLarge ? [[0, 0x10ffff]] : this.#union(this.#start);
  }

  readsOnIn(other: Automaton, follow: CharacterSet): boolean {
    if (!(other instanceof Glushkov) || this.#tooLarge || other.#tooLarge) return true;
    const seen = new Set<string>();
    const open: [one: readonly number[], other: readonly number[]][] = [];
    const enter = (one: readonly number[], two: readonly number[]) => {
      const key = `${one.join()};${two.join()}`;
      if (one.length === 0 || two.length === 0 || seen.has(key)) return;
      seen.add(key);
      open.push([one, two]);
    };
    const step = (one: readonly number[], two: readonly number[]) => {
      for (
        const code of samples([
          ...one.map((p) => this.#classes[p]),
          ...two.map((p) => other.#classes[p]),
        ])
      ) {
        enter(
          one.filter((p) => contains(this.#classes[p], code)),
          two.filter((p) => contains(other.#classes[p], code)),
        );
      }
    };
    step(this.#start, other.#start);
    for (let state = open.pop(); state; state = open.pop()) {
      if (seen.size > MAX_STATES) return true;
      const [one, two] = state;
      const next = other.#next(two);
      if (one.some((p) => this.#ends.has(p)) && meet(other.#union(next), follow)) return true;
      step(this.#next(one), next);
    }
    return false;
  }

  #next(positions: readonly number[]): readonly number[] {
    return [...new Set(positions.flatMap((p) => [...this.#follow[p]]))].sort((a, b) => a - b);
  }

  #union(positions: readonly number[]): CharacterSet {
    return positions.reduce((set: CharacterSet, p) => union(set, this.#classes[p]), NOTHING);
  }

  #positions(node: Gbnf): Positions {
    switch (node.type) {
      case "class": {
        if (this.#classes.length >= MAX_POSITIONS) throw new TooLarge();
        const position = this.#classes.push(node.set) - 1;
        this.#follow.push(new Set());
        return { nullable: false, first: [position], last: [position] };
      }
      case "rule":
        return this.#positions(this.rules.get(node.name)!);
      case "choice": {
        const options = node.options.map((option) => this.#positions(option));
        return {
          nullable: options.some(({ nullable }) => nullable),
          first: options.flatMap(({ first }) => first),
          last: options.flatMap(({ last }) => last),
        };
      }
      case "sequence":
        return node.items.reduce<Positions>((before, item) => this.#join(before, this.#positions(item)), {
          nullable: true,
          first: [],
          last: [],
        });
      case "repeat":
        return this.#repeated(node.item, node.least, node.most);
      case "token":
        throw new TooLarge();
    }
  }

  #repeated(item: Gbnf, least: number, most: number): Positions {
    let all: Positions = { nullable: true, first: [], last: [] };
    for (let i = 0; i < least; i++) all = this.#join(all, this.#positions(item));
    if (most === Infinity) {
      const more = this.#positions(item);
      for (const end of more.last) for (const start of more.first) this.#follow[end].add(start);
      return this.#join(all, { ...more, nullable: true });
    }
    for (let i = least; i < most; i++) all = this.#join(all, { ...this.#positions(item), nullable: true });
    return all;
  }

  #join(before: Positions, after: Positions): Positions {
    for (const end of before.last) for (const start of after.first) this.#follow[end].add(start);
    return {
      nullable: before.nullable && after.nullable,
      first: before.nullable ? [...before.first, ...after.first] : before.first,
      last: after.nullable ? [...before.last, ...after.last] : after.last,
    };
  }
}

/** Returns one character of each region into which the sets divide all characters. */
function samples(sets: readonly CharacterSet[]): Set<number> {
  return new Set(
    sets.flatMap((set) => set.flatMap(([first, last]) => [first, last + 1])).filter((code) =>
      code <= 0x10ffff
    ),
  );
}
