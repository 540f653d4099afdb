/** Makes strangers' text harmless for a terminal. Old versions of Deno must be able to read this file (main.ts). */

/**
 * Pattern of characters that control a terminal, reorder its text or end its lines: C0 and C1 controls, DEL,
 * bidirectional overrides and isolates, line and paragraph separators, and surrogates without a partner.
 */
const UNSAFE = /[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

const NAMED: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r" };

/** Returns a character as a JSON escape, so that escaped JSON has the same value. */
function written(character: string): string {
  return NAMED[character] ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** Returns the text as one line: line ends and control characters are escaped as in JSON. Tabs stay. */
export function escaped(text: string): string {
  return text.replace(UNSAFE, (character) => character === "\t" ? "\t" : written(character));
}

/** Returns the text with control characters escaped. Line ends stay. */
export function escapedLines(text: string): string {
  return text.split(/\r?\n/).map(escaped).join("\n");
}

/**
 * Returns a message for standard error. A line end is kept only if the next line is indented, because an indented
 * line cannot look like another message. Other line ends are escaped.
 */
export function escapedMessage(text: string): string {
  return text.split(/\n(?= {2})/).map(escaped).join("\n");
}

/** Returns the value as a line of JSON. Control characters that JSON allows in texts are escaped too. */
export function jsonLine(value: unknown, replacer?: (key: string, value: unknown) => unknown): string {
  return `${escaped(JSON.stringify(value, replacer))}\n`;
}

/** Escapes text that arrives in parts. */
export class EscapedStream {
  #held = "";

  /**
   * Adds text. Returns the part that can be shown now: the first half of a surrogate pair waits for the second, a
   * carriage return for its newline.
   */
  next(part: string): string {
    const text = this.#held + part;
    this.#held = /[\r\ud800-\udbff]$/.exec(text)?.[0] ?? "";
    return escapedLines(text.slice(0, text.length - this.#held.length));
  }
}
