/** `JSON.rawJSON`, which TypeScript does not know yet. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };

/**
 * Parses JSON like `JSON.parse`, except that `JSON.stringify` of the result writes each number as it was written: 1.0,
 * 12345678901234567890. Throws SyntaxError.
 */
export function parseWrittenJson(text: string): unknown {
  return JSON.parse(text, written as (key: string, value: unknown) => unknown);
}

/** Keeps the written form of a number. JavaScript passes its text as the third argument. */
function written(_key: string, value: unknown, { source }: { source?: string }): unknown {
  return Number.isFinite(value) && source !== undefined && String(value) !== source ? rawJSON(source) : value;
}
