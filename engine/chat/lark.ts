import type { Constraint } from "../grammar/types.ts";
import type { Mark } from "./marks.ts";

/** Puts together a grammar in llguidance's Lark, part by part. */
export class LarkGrammar {
  readonly #rules = new Map<string, string>();
  readonly #parts: Record<string, Constraint> = {};
  #names = 0;

  /** A name that stands for the expression. */
  rule(expression: string): string {
    const name = `r${this.#names++}`;
    this.#rules.set(name, expression);
    return name;
  }

  /** What the constraint accepts. */
  part(constraint: Constraint): string {
    const name = `p${this.#names++}`;
    this.#parts[name] = constraint;
    return `@${name}`;
  }

  /** Exactly this text, which is not empty. */
  text(text: string): string {
    return JSON.stringify(text);
  }

  mark({ token, text }: Mark): string {
    return token === undefined ? this.text(text) : `<[${token}]>`;
  }

  /** Any text. */
  get anything(): string {
    this.#rules.set("ANYTHING", "/(?s:.*)/");
    return "ANYTHING";
  }

  /** Blanks and line breaks, or nothing. */
  get blank(): string {
    this.#rules.set("BLANK", "/[ \\n]{0,8}/");
    return "BLANK";
  }

  /** Any text up to the mark, and the mark. */
  until(mark: Mark): string {
    return mark.token === undefined ? this.untilText(mark.text) : `${this.anything} ${this.mark(mark)}`;
  }

  /** Any text up to this one, and this one. */
  untilText(end: string): string {
    const name = `r${this.#names++}`;
    this.#rules.set(`${name}[lazy]`, `/(?s:.*)${escapeRegex(end)}/`);
    return name;
  }

  /** The constraint whose answers are those of the expression. */
  build(start: string): Constraint {
    const lines = [["start", start], ...this.#rules].map(([name, expression]) => `${name}: ${expression}`);
    return { kind: "lark", grammar: lines.join("\n") + "\n", parts: this.#parts };
  }
}

/** Alternatives as one expression. */
export function oneOf(expressions: readonly string[]): string {
  return expressions.length === 1 ? expressions[0] : `(${expressions.join(" | ")})`;
}

/** The text as a regular expression between slashes. */
export function escapeRegex(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replaceAll("\n", "\\n");
}
