import type { Paced } from "../../../pacing/pauses.ts";
import { GLOBALS } from "./globals.ts";
import { Interpreter, Scope } from "./interpreter.ts";
import { parse } from "./statements.ts";
import { Float, type Value, Work } from "./values.ts";

export { TemplateRefusal } from "./globals.ts";
export { strftime } from "./strftime.ts";

/**
 * Runs untrusted Jinja templates, with the options of Python's transformers. Templates see no JavaScript, only the
 * given values, and have limits on work and output.
 */

/** Maximum characters of a template; the largest published ones have 30,000. */
const MAX_SOURCE = 1 << 20;

/**
 * Renders a template with variables: JSON data, with bigints and Floats (such as 1.0). Each yield is a pause after
 * about 5 ms. Throws TemplateRefusal, or another error if the template fails.
 */
export type Render = (variables: Record<string, unknown>) => Paced<string>;

/** Returns the renderer of a template. Throws if it is too large or invalid. */
export function compileTemplate(source: string): Render {
  if (source.length > MAX_SOURCE) {
    throw new Error(`the template must have at most ${MAX_SOURCE} characters (got ${source.length})`);
  }
  const template = parse(source);
  return function* (variables) {
    const values = new Map(GLOBALS);
    const count = { values: 0 };
    for (const [name, value] of Object.entries(variables)) values.set(name, valueOf(value, count));
    const interpreter = new Interpreter(new Work(count.values));
    return yield* interpreter.render(template, new Scope(new Scope(undefined, values)));
  };
}

/** Returns JSON data as values of a template, and counts them. */
function valueOf(data: unknown, count: { values: number }): Value {
  count.values++;
  if (Array.isArray(data)) return data.map((item) => valueOf(item, count));
  if (typeof data !== "object" || data === null || data instanceof Float) return data;
  return new Map(Object.entries(data).map(([name, value]) => [name, valueOf(value, count)]));
}
