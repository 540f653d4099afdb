/** Reads the text for a command from standard input, from files and from the command line. */
import { fstatSync } from "node:fs";
import { concat } from "@std/bytes/concat.js";
import { explained } from "../../lib/system_errors.ts";
import { note } from "./terminal.ts";

/** Maximum bytes of one text: more than any context window holds, and small enough for memory. */
const MAX_TEXT_BYTES = 64 * 2 ** 20;
/** Milliseconds without a byte from a pipe, after which a note says that the command waits for input. */
const SILENCE_MS = 2000;

/** Name of standard input in `--file` and as the text. */
const STDIN = "-";

/** A source of bytes: an open file or standard input. */
export interface ByteSource {
  read(buffer: Uint8Array): Promise<number | null>;
}

/** The parts of standard input that these functions use. */
export interface StandardInput extends ByteSource {
  /** Whether standard input is a pipe, a file or a socket, and not a terminal or /dev/null. */
  readonly isSent: boolean;
}

/** Returns this process's standard input. */
function standardInput(): StandardInput {
  return { isSent: isSent(), read: (buffer) => Deno.stdin.read(buffer) };
}

function isSent(): boolean {
  try {
    const stat = fstatSync(0);
    return stat.isFIFO() || stat.isFile() || stat.isSocket();
  } catch {
    return false; // standard input is closed
  }
}

/**
 * Returns the text for a model: standard input, then each file, then `word`, separated by empty lines.
 * Returns undefined without any text. Standard input is read if something was sent there, or if a `-` asks
 * for it. Line ends become "
 * ", and trailing ones are removed.
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

/**
 * Returns the text of a file, or of standard input for `-`. Throws a message that begins with `cannot` if it
 * is unreadable, too long or not UTF-8.
 */
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

/** Returns all bytes of a source. Throws as soon as there are too many. */
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
    note("Waiting for standard input; add </dev/null if nothing is sent there");
  }
}
