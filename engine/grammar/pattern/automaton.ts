/** Turns a pattern with look-around into a regular expression without look-around, through its automaton. */

import { type CharacterSet, complement, contains, setOf } from "../character_set.ts";
import { Inexact, type Pattern } from "./parse.ts";
import { Search, type State } from "./program.ts";

/** Maximum states of an automaton to translate; larger expressions would be too expensive to compile. */
const MAX_STATES = 200;
const MAX_CHARACTERS = 20_000;

/** Remaining work for pattern translations, in thread moves; a millisecond allows at least 300. */
export interface Budget {
  left: number;
}

/** Throws Inexact if the budget has no room for the work. */
export function spend(budget: Budget, work: number): void {
  budget.left -= work;
  if (budget.left < 0) throw tooLarge();
}

/** Returns a budget for all patterns of a constraint. */
export function patternBudget(): Budget {
  return { left: 4000 };
}

/** Characters that JSON answers cannot contain, because JSON could only write them as \uXXXX. */
export const UNWRITABLE: CharacterSet = [[0, 7], [0xb, 0xb], [0xe, 0x1f], [0x7f, 0x7f]];

/** A deterministic automaton over classes of characters. */
interface Automaton {
  readonly classes: readonly CharacterSet[];
  readonly moves: readonly (readonly number[])[]; // [states][classes]
  readonly accepts: readonly boolean[]; // [states]
}

/**
 * Returns an expression in Rust's syntax for exactly the texts in which the pattern matches, or, if `negative`, for all
 * other texts. The expression begins with ^ and ends with $. Returns undefined if no text matches. Throws Inexact if
 * the expression would be too large.
 */
export function expressionOf(pattern: Pattern, budget: Budget, negative = false): string | undefined {
  const automaton = smallest(automatonOf(new Search(pattern), budget, negative));
  const expression = expressionFrom(automaton, budget);
  return expression === undefined ? undefined : `^(?:${expression})$`;
}

function automatonOf(search: Search, budget: Budget, negative: boolean): Automaton {
  const classes = partition(search.sets);
  const states: State[] = [];
  const numbers = new Map<string, number>();
  const number = (state: State) => {
    const known = numbers.get(state.key);
    if (known !== undefined) return known;
    spend(budget, classes.length * state.size);
    if (states.length >= MAX_STATES) throw tooLarge();
    numbers.set(state.key, states.length);
    return states.push(state) - 1;
  };
  number(search.start);
  const moves: number[][] = [];
  for (let i = 0; i < states.length; i++) {
    moves.push(classes.map((set) => number(search.next(states[i], set[0][0]))));
  }
  return { classes, moves, accepts: states.map((state) => search.accepts(state) !== negative) };
}

/** Divides all writable characters into classes that no set divides further. */
function partition(sets: readonly CharacterSet[]): CharacterSet[] {
  const writable = complement(UNWRITABLE);
  const cuts = [...sets, writable].flatMap((set) => set.flatMap(([first, last]) => [first, last + 1]));
  const places = [...new Set(cuts)].sort((a, b) => a - b);
  const distinct = [...new Set(sets)];
  const classes = new Map<string, [number, number][]>();
  places.forEach((first, i) => {
    if (!contains(writable, first)) return;
    const key = distinct.map((set) => contains(set, first) ? 1 : 0).join("");
    const ranges = classes.get(key) ?? [];
    ranges.push([first, places[i + 1] - 1]);
    classes.set(key, ranges);
  });
  return [...classes.values()].map(setOf);
}

/** Merges equivalent states of the automaton. */
function smallest({ classes, moves, accepts }: Automaton): Automaton {
  let groups = accepts.map(Number);
  for (let count = 0;;) {
    const keys = moves.map((to, i) => `${groups[i]}:${to.map((state) => groups[state]).join()}`);
    const numbers = new Map<string, number>();
    for (const key of keys) if (!numbers.has(key)) numbers.set(key, numbers.size);
    groups = keys.map((key) => numbers.get(key)!);
    if (numbers.size === count) break;
    count = numbers.size;
  }
  const members = [...new Set(groups)].map((group) => groups.indexOf(group));
  return {
    classes,
    moves: members.map((state) => moves[state].map((to) => groups[to])),
    accepts: members.map((state) => accepts[state]),
  };
}

/**
 * Returns the automaton's expression: removes states one by one and joins the expressions of the paths through each.
 */
function expressionFrom({ classes, moves, accepts }: Automaton, budget: Budget): string | undefined {
  const start = moves.length, end = start + 1;
  const ways = new Map<number, Map<number, string>>();
  const add = (from: number, to: number, text: string) => {
    spend(budget, 1);
    const row = ways.get(from) ?? new Map<number, string>();
    const known = row.get(to);
    row.set(to, known === undefined ? text : known === text ? text : `${known}|${text}`);
    if (row.get(to)!.length > MAX_CHARACTERS) throw tooLarge();
    ways.set(from, row);
  };
  moves.forEach((targets, from) => {
    for (const to of new Set(targets)) {
      add(from, to, textOf(setOf(classes.filter((_, i) => targets[i] === to).flat())));
    }
    if (accepts[from]) add(from, end, "");
  });
  add(start, 0, "");
  const left = new Set(moves.keys());
  while (left.size > 0) {
    const [state] = [...left].map((state) => [state, cost(ways, state)] as const)
      .reduce((best, other) => other[1] < best[1] ? other : best);
    left.delete(state);
    const out = ways.get(state) ?? new Map<number, string>();
    const loop = out.get(state);
    for (const [from, row] of ways) {
      const into = row.get(state);
      if (into === undefined || from === state) continue;
      row.delete(state);
      for (const [to, text] of out) {
        if (to !== state) add(from, to, group(into) + (loop === undefined ? "" : star(loop)) + group(text));
      }
    }
    ways.delete(state);
  }
  return ways.get(start)?.get(end);
}

/** Returns the number of paths through a state, weighted by the length of their expressions. */
function cost(ways: ReadonlyMap<number, ReadonlyMap<number, string>>, state: number): number {
  let into = 0, incoming = 0;
  for (const [from, row] of ways) {
    const text = row.get(state);
    if (text === undefined || from === state) continue;
    into++;
    incoming += text.length;
  }
  let outgoing = 0, out = 0;
  for (const [to, text] of ways.get(state) ?? []) {
    if (to === state) continue;
    out++;
    outgoing += text.length;
  }
  return incoming * out + outgoing * into + into * out;
}

function group(text: string): string {
  return text.includes("|") ? `(?:${text})` : text;
}

function star(text: string): string {
  return /^\[[^\]]*\]$/.test(text) ? `${text}*` : `(?:${text})*`;
}

function textOf(set: CharacterSet): string {
  const code = (point: number) => `\\u{${point.toString(16)}}`;
  return `[${
    set.map(([first, last]) => first === last ? code(first) : `${code(first)}-${code(last)}`).join("")
  }]`;
}

function tooLarge(): Inexact {
  return new Inexact("is too large together with its look-around");
}
