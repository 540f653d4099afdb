import type { Constraint, LoosenedSchema } from "../grammar/types.ts";
import type { Mark } from "./marks.ts";

/** Builds a grammar in llguidance's Lark dialect, rule by rule. */
export class LarkGrammar {
  readonly #rules = new Map<string, string>();
  readonly #parts: Record<string, Constraint> = {};
  /** Keywords of tools that the call format cannot express. */
  readonly loosened: LoosenedSchema[] = [];
  #names = 0;

  /** Adds a rule for the expression. Returns its name. */
  rule(expression: string): string {
    const name = `r${this.#names++}`;
    this.#rules.set(name, expression);
    return name;
  }

  /** Returns a reference to what the constraint accepts. */
  part(constraint: Constraint): string {
    const name = `p${this.#names++}`;
    this.#parts[name] = constraint;
    return `@${name}`;
  }

  /** Returns an expression for exactly this text, which must not be empty. */
  text(text: string): string {
    return JSON.stringify(text);
  }

  mark({ token, text }: Mark): string {
    return token === undefined ? this.text(text) : `<[${token}]>`;
  }

  /** Matches any text. */
  get anything(): string {
    this.#rules.set("ANYTHING", "/(?s:.*)/");
    return "ANYTHING";
  }

  /** Matches up to eight blanks and line breaks. */
  get blank(): string {
    this.#rules.set("BLANK", "/[ \\n]{0,8}/");
    return "BLANK";
  }

  /** Matches any text up to and including the mark. */
  until(mark: Mark): string {
    return mark.token === undefined ? this.untilText(mark.text) : `${this.anything} ${this.mark(mark)}`;
  }

  /** Matches any text up to and including `end`. */
  untilText(end: string): string {
    const name = `r${this.#names++}`;
    this.#rules.set(`${name}[lazy]`, `/(?s:.*)${escapeRegex(end)}/`);
    return name;
  }

  /** Returns the constraint that accepts what the expression matches. */
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

/** Returns an expression of alternatives. */
export function oneOf(expressions: readonly string[]): string {
  return expressions.length === 1 ? expressions[0] : `(${expressions.join(" | ")})`;
}

/** Escapes the text for a regular expression between slashes. */
function escapeRegex(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replaceAll("\n", "\\n");
}
