/** The text that a command is given: on standard input, in files, and as a word. */
import { fstatSync } from "node:fs";
import { concat } from "@std/bytes/concat.js";
import { explained } from "../../lib/system_errors.ts";
import { note } from "./terminal.ts";

/** Most bytes of one text. More than any context holds, and little enough for memory. */
const MAX_TEXT_BYTES = 64 * 2 ** 20;
/** After this without a byte from a pipe, a note says what is waited for. */
const SILENCE_MS = 2000;

/** What `--file` and a text on the command line mean for standard input. */
export const STDIN = "-";

/** Where bytes come from: an open file, or standard input. */
export interface ByteSource {
  read(buffer: Uint8Array): Promise<number | null>;
}

/** Standard input, as far as these functions ask for it. */
export interface StandardInput extends ByteSource {
  /** Whether something was sent there: a pipe, a file or a socket, and not a terminal or /dev/null. */
  readonly isSent: boolean;
}

/** This process's own. */
export function standardInput(): StandardInput {
  return { isSent: isSent(), read: (buffer) => Deno.stdin.read(buffer) };
}

function isSent(): boolean {
  try {
    const stat = fstatSync(0);
    return stat.isFIFO() || stat.isFile() || stat.isSocket();
  } catch {
    return false; // closed
  }
}

/**
 * Returns the text for a model: standard input, then each file, then `word`, with an empty line between them; undefined without any
 * text. Standard input is read if something was sent there, or if a `-` asks for it. Line ends become "\n", those at the end are removed.
 */
export async function givenText(
  files: readonly string[],
  word: string | undefined,
  input: StandardInput = standardInput(),
): Promise<string | undefined> {
  const unasked = input.isSent && !files.includes(STDIN);
  const sources = word === STDIN || unasked ? [STDIN, ...files] : files;
  const parts: string[] = [];
  for (const source of sources) {
    const text = await readText(source, "Cannot read the text", input);
    parts.push(text.replace(/^\uFEFF/, "").replaceAll("\r\n", "\n").replace(/\n+$/, ""));
  }
  if (word !== undefined && word !== STDIN) parts.push(word);
  return parts.filter((part) => part !== "").join("\n\n") || undefined;
}

/** The text of a file, or of standard input for `-`. Throws, beginning with `cannot`, where it cannot be read, is too long or not UTF-8. */
export async function readText(
  path: string,
  cannot: string,
  input: ByteSource = standardInput(),
): Promise<string> {
  const what = path === STDIN ? `${cannot} from standard input` : `${cannot} "${path}"`;
  const bytes = await bytesOf(path, input, what);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error(`${what}: it must be UTF-8, and some of its bytes are not`);
  }
}

async function bytesOf(path: string, input: ByteSource, what: string): Promise<Uint8Array> {
  try {
    if (path === STDIN) return await readAll(input, what, true);
    using file = await Deno.open(path);
    return await readAll(file, what);
  } catch (error) {
    throw explained(what, error);
  }
}

/** All bytes of a source. Stops reading, and throws, where there are too many. */
async function readAll(source: ByteSource, what: string, waits = false): Promise<Uint8Array> {
  const timer = waits ? setTimeout(tellOfWaiting, SILENCE_MS) : undefined;
  const buffer = new Uint8Array(2 ** 16);
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const count = await source.read(buffer);
      if (count === null) return concat(chunks);
      clearTimeout(timer);
      length += count;
      if (length > MAX_TEXT_BYTES) {
        throw new Error(`${what}: it has more than ${MAX_TEXT_BYTES / 2 ** 20} MiB, the most for one text`);
      }
      chunks.push(buffer.slice(0, count));
    }
  } finally {
    clearTimeout(timer);
  }
}

function tellOfWaiting(): void {
  if (!Deno.stdin.isTerminal()) {
    note("Waiting for standard input; add </dev/null where nothing comes from there");
  }
}
