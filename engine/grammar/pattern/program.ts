/** Runs patterns with look-around on sets of threads, character by character. */

import { type CharacterSet, contains } from "../character_set.ts";
import { Inexact, type Pattern, WORD } from "./parse.ts";

/** Maximum steps of a pattern's program; larger patterns are not translated. */
const MAX_STEPS = 2000;
const ALL: CharacterSet = [[0, 0x10ffff]];

type Step =
  | { readonly op: "set"; readonly set: CharacterSet }
  | { readonly op: "split"; readonly to: readonly number[] }
  | { readonly op: "edge"; readonly at: "start" | "end" | "word" | "inside" }
  | { readonly op: "ahead"; readonly program: Program; readonly negative: boolean }
  | { readonly op: "behind"; readonly set: CharacterSet; readonly negative: boolean }
  | { readonly op: "match" };

export interface Program {
  readonly id: number;
  readonly steps: readonly Step[];
}

/** A position in a pattern's program, and the look-aheads that the rest of the text must fulfil. */
interface Thread {
  readonly at: number;
  readonly promises: readonly Promised[];
}

interface Promised {
  readonly program: Program;
  readonly negative: boolean;
  readonly threads: readonly Thread[];
}

/** The state of a search after some characters. States with equal keys have the same future. */
export interface State {
  readonly key: string;
  readonly threads: readonly Thread[];
  /**
   * Representative of the character before this position, as far as look-behinds distinguish it; undefined at the
   * start.
   */
  readonly before: number | undefined;
  /** The number of threads in the state. */
  readonly size: number;
}

/** The search for a pattern anywhere in a text. */
export class Search {
  /** All character sets that the pattern's programs test. */
  readonly sets: CharacterSet[] = [];
  readonly start: State;
  readonly #main: Program;
  /** Character sets that the programs test on the preceding character. */
  readonly #behind: CharacterSet[] = [];
  #programs = 0;
  #size = 0;

  constructor(pattern: Pattern) {
    const any: Pattern = { type: "repeat", item: { type: "set", set: ALL }, least: 0, most: Infinity };
    this.#main = this.#compile({ type: "sequence", items: [any, pattern, any] }, true);
    this.start = this.#state([{ at: 0, promises: [] }], undefined);
  }

  /** Returns the state of the search after one more character. */
  next({ threads, before }: State, character: number): State {
    return this.#state(step(this.#main, threads, before, character), character);
  }

  /** Returns whether the pattern matches a text that ends in this state. */
  accepts({ threads, before }: State): boolean {
    return closure(this.#main, threads, before, undefined).some(({ at, promises }) =>
      this.#main.steps[at].op === "match" && promises.every(({ program, negative, threads }) => {
        return matches(program, closure(program, threads, before, undefined)) !== negative;
      })
    );
  }

  #state(threads: readonly Thread[], before: number | undefined): State {
    const seen = before === undefined
      ? "^"
      : this.#behind.map((set) => contains(set, before) ? 1 : 0).join("");
    return { key: `${seen}:${keyOf(threads)}`, threads, before, size: sizeOf(threads) };
  }

  #compile(pattern: Pattern, mayLook: boolean): Program {
    const steps: Step[] = [];
    this.#add(pattern, steps, mayLook);
    steps.push({ op: "match" });
    return { id: this.#programs++, steps };
  }

  #add(pattern: Pattern, steps: Step[], mayLook: boolean): void {
    if (++this.#size > MAX_STEPS) throw new Inexact("is too large together with its look-around");
    switch (pattern.type) {
      case "set":
        this.sets.push(pattern.set);
        steps.push({ op: "set", set: pattern.set });
        break;
      case "sequence":
        for (const item of pattern.items) this.#add(item, steps, mayLook);
        break;
      case "choice":
        this.#addChoice(pattern.options, steps, mayLook);
        break;
      case "repeat":
        this.#addRepeat(pattern, steps, mayLook);
        break;
      case "edge":
        if (pattern.at === "word" || pattern.at === "inside") {
          this.sets.push(WORD);
          this.#behind.push(WORD);
        }
        steps.push({ op: "edge", at: pattern.at });
        break;
      case "look":
        if (!mayLook) throw new Inexact("has look-around inside look-around");
        steps.push(
          pattern.behind ? this.#behindOf(pattern) : {
            op: "ahead",
            program: this.#compile(pattern.item, false),
            negative: pattern.negative,
          },
        );
        break;
    }
  }

  #behindOf({ item, negative }: Extract<Pattern, { type: "look" }>): Step {
    if (item.type !== "set") throw new Inexact("looks behind at more than one character");
    this.sets.push(item.set);
    this.#behind.push(item.set);
    return { op: "behind", set: item.set, negative };
  }

  #addChoice(options: readonly Pattern[], steps: Step[], mayLook: boolean): void {
    const split = steps.push({ op: "split", to: [] }) - 1;
    const starts: number[] = [];
    const ends: number[] = [];
    for (const option of options) {
      starts.push(steps.length);
      this.#add(option, steps, mayLook);
      ends.push(steps.push({ op: "split", to: [] }) - 1);
    }
    steps[split] = { op: "split", to: starts };
    for (const end of ends) steps[end] = { op: "split", to: [steps.length] };
  }

  #addRepeat({ item, least, most }: Extract<Pattern, { type: "repeat" }>, steps: Step[], mayLook: boolean) {
    for (let i = 0; i < least; i++) this.#add(item, steps, mayLook);
    if (most === Infinity) {
      const split = steps.push({ op: "split", to: [] }) - 1;
      this.#add(item, steps, mayLook);
      steps.push({ op: "split", to: [split] });
      steps[split] = { op: "split", to: [split + 1, steps.length] };
      return;
    }
    const splits: number[] = [];
    for (let i = least; i < most; i++) {
      splits.push(steps.push({ op: "split", to: [] }) - 1);
      this.#add(item, steps, mayLook);
    }
    for (const split of splits) steps[split] = { op: "split", to: [split + 1, steps.length] };
  }
}

function sizeOf(threads: readonly Thread[]): number {
  return threads.reduce(
    (sum, { promises }) => promises.reduce((sum, { threads }) => sum + sizeOf(threads), sum + 1),
    0,
  );
}

function keyOf(threads: readonly Thread[]): string {
  return threads.map(({ at, promises }) =>
    `${at}${
      promises.map(({ program, negative, threads }) => `<${program.id}${negative}${keyOf(threads)}>`).join("")
    }`
  ).toSorted().join(" ");
}

/** Returns the threads that wait for a character or have matched. `after`: the next character, if any. */
function closure(
  { steps }: Program,
  threads: readonly Thread[],
  before: number | undefined,
  after: number | undefined,
): Thread[] {
  const found: Thread[] = [];
  const seen = new Set<string>();
  const open = [...threads];
  for (let thread = open.pop(); thread; thread = open.pop()) {
    const key = keyOf([thread]);
    if (seen.has(key)) continue;
    seen.add(key);
    const { at, promises } = thread;
    const step = steps[at];
    if (step.op === "set" || step.op === "match") found.push(thread);
    else if (step.op === "split") { for (const to of step.to) open.push({ at: to, promises }); }
    else if (step.op === "ahead") {
      const { program, negative } = step;
      open.push({
        at: at + 1,
        promises: [...promises, { program, negative, threads: [{ at: 0, promises: [] }] }],
      });
    } else if (holds(step, before, after)) open.push({ at: at + 1, promises });
  }
  return found;
}

function holds(
  step: Extract<Step, { op: "edge" | "behind" }>,
  before: number | undefined,
  after: number | undefined,
): boolean {
  const isIn = (set: CharacterSet, code: number | undefined) => code !== undefined && contains(set, code);
  if (step.op === "behind") return isIn(step.set, before) !== step.negative;
  if (step.at === "start") return before === undefined;
  if (step.at === "end") return after === undefined;
  return (isIn(WORD, before) !== isIn(WORD, after)) === (step.at === "word");
}

function matches({ steps }: Program, threads: readonly Thread[]): boolean {
  return threads.some(({ at }) => steps[at].op === "match");
}

function step(
  program: Program,
  threads: readonly Thread[],
  before: number | undefined,
  character: number,
): Thread[] {
  const next = new Map<string, Thread>();
  for (const { at, promises } of closure(program, threads, before, character)) {
    const step = program.steps[at];
    if (step.op !== "set" || !contains(step.set, character)) continue;
    const kept = promises.map((promise) => afterCharacter(promise, before, character));
    if (kept.includes(false)) continue;
    const open = kept.filter((promise) => typeof promise === "object");
    const distinct = [...new Map(open.map((promise) => [keyOf([{ at: 0, promises: [promise] }]), promise]))];
    const thread = {
      at: at + 1,
      promises: distinct.toSorted(([a], [b]) => a < b ? -1 : 1).map(([, promise]) => promise),
    };
    next.set(keyOf([thread]), thread);
  }
  return [...next.values()];
}

/** Returns the rest of a look-ahead after a character: true if fulfilled, false if impossible. */
function afterCharacter(
  { program, negative, threads }: Promised,
  before: number | undefined,
  character: number,
): Promised | boolean {
  if (matches(program, closure(program, threads, before, character))) return !negative;
  const rest = step(program, threads, before, character);
  return rest.length === 0 ? negative : { program, negative, threads: rest };
}
