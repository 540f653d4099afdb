import type { Constraint, LoosenedSchema } from "../grammar/types.ts";
import type { Mark } from "./marks.ts";

/** Builds a grammar in llguidance's Lark dialect, rule by rule. */
export class LarkGrammar {
  readonly #rules = new Map<string, string>();
  readonly #parts: Record<string, Constraint> = {};
  /** Keywords of tools that the call format cannot express. */
  readonly loosened: LoosenedSchema[] = [];
  #names = 0;

  /** Adds a grammar rule for the expression. Returns the rule's name. */
  rule(expression: string): string {
    const name = `r${this.#names++}`;
    this.#rules.set(name, expression);
    return name;
  }

  /** Returns a grammar reference to a constraint. */
  part(constraint: Constraint): string {
    const name = `p${this.#names++}`;
    this.#parts[name] = constraint;
    return `@${name}`;
  }

  /** Returns a grammar expression for exactly this text, which must not be empty. */
  text(text: string): string {
    return JSON.stringify(text);
  }

  mark({ token, text, around = ["", ""] }: Mark): string {
    if (token === undefined) return this.text(text);
    const [before, after] = around.map((text) => text && this.text(text));
    return `${before} <[${token}]> ${after}`.trim();
  }

  /** Grammar expression that matches any text. */
  get anything(): string {
    this.#rules.set("ANYTHING", "/(?s:.*)/");
    return "ANYTHING";
  }

  /** Grammar expression that matches up to eight blanks and line breaks. */
  get blank(): string {
    this.#rules.set("BLANK", "/[ \\n]{0,8}/");
    return "BLANK";
  }

  /** Returns a grammar expression that matches any text up to and including the mark. */
  until(mark: Mark): string {
    if (mark.token === undefined) return this.untilText(mark.text);
    const [before, after] = mark.around ?? ["", ""];
    if (before === "") return `${this.anything} ${this.mark(mark)}`;
    // One terminal matches all text including `before`: a terminal for any text alone would also consume `before`.
    const name = `UNTIL${this.#names++}`;
    this.#rules.set(name, `/(?s:.*)${escapeRegex(before)}/`);
    return `${name} ${this.mark({ ...mark, around: ["", after] })}`;
  }

  /** Returns a grammar expression that matches any text up to and including `end`. */
  untilText(end: string): string {
    const name = `r${this.#names++}`;
    this.#rules.set(`${name}[lazy]`, `/(?s:.*)${escapeRegex(end)}/`);
    return name;
  }

  /** Returns the constraint for the grammar that starts with the expression. */
  build(start: string): Constraint {
    const lines = [["start", start], ...this.#rules].map(([name, expression]) => `${name}: ${expression}`);
    const { loosened } = this;
    const parts = this.#parts;
    return {
      kind: "lark",
      grammar: lines.join("\n") + "\n",
      parts,
      ...(loosened.length > 0 && { loosened }),
    };
  }
}

/** Returns a grammar expression of alternatives. */
export function oneOf(expressions: readonly string[]): string {
  return expressions.length === 1 ? expressions[0] : `(${expressions.join(" | ")})`;
}

/** Escapes the text for a regular expression between slashes. */
function escapeRegex(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replaceAll("\n", "\\n");
}
