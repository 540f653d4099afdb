/**
 * Translates GBNF into llguidance's Lark. GBNF reads character by character and tries every way, but a Lark lexer takes
 * the longest text it can. If the lexer would read past an expression, the expression is split into smaller terminals,
 * at most into single characters.
 */

import { type CharacterSet, equal, meet, NOTHING, union } from "./character_set.ts";
import { type Automaton, automatonOf } from "./gbnf_automaton.ts";
import { type Gbnf, parseGbnf, rulesIn } from "./gbnf.ts";
import { LIMITS, over } from "./limits.ts";
import { ConstraintError } from "./types.ts";

/**
 * Returns the Lark grammar of a GBNF text. Throws ConstraintError for an invalid grammar, and for left recursion as
 * llama.cpp does.
 */
export function larkOfGbnf(source: string): string {
  const rules = parseGbnf(source);
  const nullable = nullableRules(rules);
  refuseLeftRecursion(rules, nullable);
  const translation = new Translation(rules, nullable);
  while (translation.takeApart());
  return translation.write();
}

/** A regular part of the grammar that becomes one terminal wherever it occurs. */
interface Terminal {
  readonly node: Gbnf;
  readonly automaton: Automaton;
  /** Characters that may follow the terminal. */
  follow: CharacterSet;
}

class Translation {
  /** Rules that are used only inside terminals: they contain neither recursion nor tokens. */
  readonly #regular: Set<string>;
  /** Lark text of expressions that were split and must stay split. */
  readonly #apart = new Set<string>();
  #terminals = new Map<string, Terminal>();
  readonly #automata = new Map<string, Automaton>();
  readonly #first = new Map<string, CharacterSet>();

  constructor(
    private readonly rules: ReadonlyMap<string, Gbnf>,
    private readonly nullable: ReadonlySet<string>,
  ) {
    this.#regular = regularRules(rules);
    if (size({ type: "rule", name: "root" }, rules, this.#regular) > LIMITS.characters) {
      throw over("characters", "number of characters, its rules written out,", Infinity);
    }
  }

  /** Splits terminals for which the lexer would match too much text. Returns whether it split any. */
  takeApart(): boolean {
    this.#collect();
    const terminals = [...this.#terminals];
    const before = this.#apart.size;
    for (const [, one] of terminals) {
      for (const [key, other] of terminals) {
        if (!this.#apart.has(key) && readsOn(one, other)) this.#apart.add(key);
      }
    }
    return this.#apart.size > before;
  }

  write(): string {
    const lines: string[] = [];
    const names = new Map([...this.#terminals.keys()].map((key, i) => [key, `T${i}`]));
    for (const name of this.#live()) {
      lines.push(`${ruleName(name)}: ${this.#lark(this.rules.get(name)!, names)}`);
    }
    for (const [key, name] of names) lines.push(`${name}: ${key}`);
    // Each regular rule becomes one Lark terminal, which other terminals name.
    for (const name of this.#regular) lines.push(`${partName(name)}: ${regular(this.rules.get(name)!)}`);
    return lines.join("\n");
  }

  /** Returns the rules that `root` reaches and that are used outside terminals. */
  #live(): Set<string> {
    const live = new Set<string>(["root"]);
    const visit = (node: Gbnf): void => {
      if (this.#isTerminal(node)) return;
      if (node.type === "rule" && !live.has(node.name)) live.add(node.name);
      for (const inner of children(node)) visit(inner);
    };
    // Iterating a set also visits names that were added meanwhile.
    for (const name of live) visit(this.rules.get(name)!);
    return live;
  }

  /** Collects the terminals of all live rules, and the characters that may follow them. */
  #collect(): void {
    this.#terminals = new Map();
    this.#first.clear();
    const live = this.#live();
    let changed = true;
    while (changed) {
      changed = false;
      for (const name of live) {
        const first = this.#firstOf(this.rules.get(name)!);
        if (!equal(first, this.#first.get(name) ?? NOTHING)) changed = true;
        this.#first.set(name, first);
      }
    }
    const follows = new Map<string, CharacterSet>();
    const add = (name: string, follow: CharacterSet) => {
      const known = follows.get(name) ?? NOTHING;
      const all = union(known, follow);
      if (!equal(all, known)) changed = true;
      follows.set(name, all);
    };
    const visit = (node: Gbnf, follow: CharacterSet): void => {
      if (this.#isTerminal(node)) {
        const key = regular(node);
        const terminal = this.#terminals.get(key) ??
          { node, automaton: this.#automaton(key, node), follow: NOTHING };
        terminal.follow = union(terminal.follow, follow);
        this.#terminals.set(key, terminal);
        return;
      }
      if (node.type === "rule") add(node.name, follow);
      if (node.type === "choice") node.options.forEach((option) => visit(option, follow));
      if (node.type === "repeat") {
        visit(node.item, node.most > 1 ? union(follow, this.#firstOf(node.item)) : follow);
      }
      if (node.type === "sequence") {
        let after = follow;
        for (const item of node.items.toReversed()) {
          visit(item, after);
          after = this.#nullable(item) ? union(after, this.#firstOf(item)) : this.#firstOf(item);
        }
      }
    };
    do {
      changed = false;
      for (const name of live) visit(this.rules.get(name)!, follows.get(name) ?? NOTHING);
    } while (changed);
  }

  #automaton(key: string, node: Gbnf): Automaton {
    const known = this.#automata.get(key);
    if (known) return known;
    const automaton = automatonOf(node, this.rules);
    this.#automata.set(key, automaton);
    return automaton;
  }

  /** Returns whether the node is a regular expression that was not split and has at least one character. */
  #isTerminal(node: Gbnf): boolean {
    if (node.type === "sequence" && node.items.length === 0) return false;
    if (!isRegular(node, this.#regular)) return false;
    return node.type === "class" || !this.#apart.has(regular(node));
  }

  #nullable(node: Gbnf): boolean {
    return isNullable(node, this.nullable);
  }

  #firstOf(node: Gbnf): CharacterSet {
    switch (node.type) {
      case "class":
        return node.set;
      case "rule":
        return this.#first.get(node.name) ??
          (this.#regular.has(node.name) ? this.#firstOf(this.rules.get(node.name)!) : NOTHING);
      case "choice":
        return node.options.reduce((set: CharacterSet, option) => union(set, this.#firstOf(option)), NOTHING);
      case "repeat":
        return this.#firstOf(node.item);
      case "sequence": {
        let set = NOTHING;
        for (const item of node.items) {
          set = union(set, this.#firstOf(item));
          if (!this.#nullable(item)) break;
        }
        return set;
      }
      case "token":
        return NOTHING;
    }
  }

  #lark(node: Gbnf, names: ReadonlyMap<string, string>): string {
    if (this.#isTerminal(node)) {
      const name = names.get(regular(node))!;
      return this.#nullable(node) ? `[${name}]` : name;
    }
    switch (node.type) {
      case "sequence":
        return node.items.length === 0 ? '""' : node.items.map((item) => this.#lark(item, names)).join(" ");
      case "choice":
        return `(${node.options.map((option) => this.#lark(option, names)).join(" | ")})`;
      case "repeat":
        return repeated(`(${this.#lark(node.item, names)})`, node);
      case "rule":
        return ruleName(node.name);
      case "token":
        return `<[${node.negated ? "^" : ""}${node.token}]>`;
      case "class":
        throw new Error("A class is always a terminal");
    }
  }
}

/** Returns whether the lexer, at the end of `one`, would continue in `other` with text that may follow `one`. */
function readsOn(one: Terminal, other: Terminal): boolean {
  if (one.follow.length === 0 || !meet(one.automaton.first, other.automaton.first)) return false;
  return other.node.type !== "class" && one.automaton.readsOnIn(other.automaton, one.follow);
}

/** Returns a regular expression in the syntax of Lark's terminals. */
function regular(node: Gbnf): string {
  switch (node.type) {
    case "class":
      return node.set.length === 0 ? "/[^\\x00-\\u{10ffff}]/" : `/[${node.set.map(range).join("")}]/`;
    case "sequence":
      if (node.items.length === 0) return '""';
      if (node.items.every(isCharacter)) return JSON.stringify(node.items.map(characterOf).join(""));
      return node.items.map((item) => item.type === "choice" ? `(${regular(item)})` : regular(item)).join(
        " ",
      );
    case "choice":
      return node.options.map(regular).join(" | ");
    case "repeat":
      return repeated(`(${regular(node.item)})`, node);
    case "rule":
      return partName(node.name);
    case "token":
      throw new Error("A token reference cannot stand inside a regular expression");
  }
}

function range([first, last]: readonly [number, number]): string {
  const hex = (code: number) => `\\u{${code.toString(16)}}`;
  return first === last ? hex(first) : `${hex(first)}-${hex(last)}`;
}

function repeated(item: string, { least, most }: { least: number; most: number }): string {
  if (most === 0) return '""';
  if (least === 0 && most === 1) return `${item}?`;
  if (most === Infinity) {
    return least === 0 ? `${item}*` : least === 1 ? `${item}+` : `${item}{${least}} ${item}*`;
  }
  return least === most ? `${item}{${least}}` : `${item}{${least},${most}}`;
}

function isCharacter(node: Gbnf): boolean {
  return node.type === "class" && node.set.length === 1 && node.set[0][0] === node.set[0][1] &&
    node.set[0][0] > 0x1f &&
    node.set[0][0] !== 0x7f;
}

function characterOf(node: Gbnf): string {
  return node.type === "class" ? String.fromCodePoint(node.set[0][0]) : "";
}

function ruleName(name: string): string {
  return name === "root" ? "start" : `r_${spelled(name)}`;
}

function partName(name: string): string {
  return `P_${spelled(name).toUpperCase()}`;
}

/** Returns distinct texts for distinct names, using lower-case letters, digits and "_". */
function spelled(name: string): string {
  return name.replace(/[^a-z0-9]/g, (letter) => `_${letter.charCodeAt(0).toString(16)}`);
}

function children(node: Gbnf): readonly Gbnf[] {
  return node.type === "sequence"
    ? node.items
    : node.type === "choice"
    ? node.options
    : node.type === "repeat"
    ? [node.item]
    : [];
}

function isNullable(node: Gbnf, rules: ReadonlySet<string>): boolean {
  switch (node.type) {
    case "sequence":
      return node.items.every((item) => isNullable(item, rules));
    case "choice":
      return node.options.some((option) => isNullable(option, rules));
    case "repeat":
      return node.least === 0 || isNullable(node.item, rules);
    case "rule":
      return rules.has(node.name);
    default:
      return false;
  }
}

function nullableRules(rules: ReadonlyMap<string, Gbnf>): Set<string> {
  const found = new Set<string>();
  for (let before = -1; before < found.size;) {
    before = found.size;
    for (const [name, rule] of rules) if (isNullable(rule, found)) found.add(name);
  }
  return found;
}

/** Returns the rules that may stand at the very start of an expression. */
function leftmost(node: Gbnf, nullable: ReadonlySet<string>): string[] {
  if (node.type === "rule") return [node.name];
  if (node.type !== "sequence") return children(node).flatMap((inner) => leftmost(inner, nullable));
  const end = node.items.findIndex((item) => !isNullable(item, nullable));
  return node.items.slice(0, end < 0 ? undefined : end + 1).flatMap((item) => leftmost(item, nullable));
}

function refuseLeftRecursion(rules: ReadonlyMap<string, Gbnf>, nullable: ReadonlySet<string>): void {
  for (const name of onCircles(new Map([...rules].map(([name, rule]) => [name, leftmost(rule, nullable)])))) {
    throw new ConstraintError(
      `The grammar's rule "${name}" begins with itself: left recursion is not supported`,
    );
  }
}

/** Returns the rules that reach neither a recursive rule nor a token. */
function regularRules(rules: ReadonlyMap<string, Gbnf>): Set<string> {
  const uses = new Map([...rules].map(([name, rule]) => [name, rulesIn(rule)]));
  const others = onCircles(uses);
  for (const [name, rule] of rules) if (hasToken(rule)) others.add(name);
  for (let before = -1; before < others.size;) {
    before = others.size;
    for (const [name, used] of uses) if (used.some((other) => others.has(other))) others.add(name);
  }
  return new Set([...rules.keys()].filter((name) => !others.has(name)));
}

function hasToken(node: Gbnf): boolean {
  return node.type === "token" || children(node).some(hasToken);
}

function isRegular(node: Gbnf, rules: ReadonlySet<string>): boolean {
  if (node.type === "rule") return rules.has(node.name);
  return node.type !== "token" && children(node).every((inner) => isRegular(inner, rules));
}

/** Returns the names on cycles of the graph. */
function onCircles(graph: ReadonlyMap<string, readonly string[]>): Set<string> {
  const reach = new Map([...graph].map(([name, to]) => [name, new Set(to)]));
  const found = new Set<string>();
  for (const name of graph.keys()) {
    const seen = new Set<string>();
    const open = [...reach.get(name)!];
    while (open.length > 0 && !seen.has(name)) {
      const next = open.pop()!;
      if (seen.has(next)) continue;
      seen.add(next);
      open.push(...reach.get(next) ?? []);
    }
    if (seen.has(name)) found.add(name);
  }
  return found;
}

/** Returns the number of characters of an expression with its regular rules inserted. A repetition counts once. */
function size(root: Gbnf, rules: ReadonlyMap<string, Gbnf>, regularNames: ReadonlySet<string>): number {
  const known = new Map<string, number>();
  const of = (node: Gbnf): number => {
    if (node.type !== "rule") return 1 + children(node).reduce((sum, inner) => sum + of(inner), 0);
    if (!regularNames.has(node.name) && node !== root) return 1;
    if (!known.has(node.name)) {
      known.set(node.name, 0);
      known.set(node.name, of(rules.get(node.name)!));
    }
    return known.get(node.name)!;
  };
  return Math.max(of(root), ...[...regularNames].map((name) => of({ type: "rule", name })));
}
