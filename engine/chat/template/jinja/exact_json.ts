import { parseFloating, parseInteger } from "./numbers.ts";

/**
 * Parses JSON like `JSON.parse`, except that numbers keep their text: large integers become bigints, and
 * floats without a fraction, for example 1.0, become Floats.
 */
export function parseExactJson(text: string): unknown {
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

/** JavaScript passes the number's text as the third argument, which TypeScript does not know yet. */
function exact(_key: string, value: unknown, { source }: { source?: string }): unknown {
  if (typeof value !== "number" || source === undefined) return value;
  return (/[.e]/i.test(source) ? parseFloating(source) : parseInteger(source)) ?? value;
}
