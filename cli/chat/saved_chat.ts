/** Saves conversations in files: JSON of messages and settings, as on the server's page. */
import type { Message } from "../../lib/messages.ts";
import { systemReason } from "../../lib/system_errors.ts";
import { UsageError } from "../shared/flags.ts";
import { show } from "../shared/read_settings.ts";
import { isObject } from "../../lib/model.ts";

/** A conversation as a file holds it. Settings have the names of the HTTP API. */
export interface SavedChat {
  readonly messages: readonly Message[];
  readonly settings: Readonly<Record<string, unknown>>;
}

const VERSION = 1;
/** Limits of conversation files, which may come from strangers. */
const MAX_BYTES = 128 * 2 ** 20;
const MAX_MESSAGES = 10_000;
const MAX_IMAGES = 8;
const ROLES: readonly unknown[] = ["system", "user", "assistant"];

/**
 * Writes a conversation, readable only for its owner. Deno asks the user for the permission. Throws if the file
 * exists, unless `mayReplace`.
 */
export async function saveChat(path: string, chat: SavedChat, mayReplace: boolean): Promise<void> {
  const { state } = await Deno.permissions.request({ name: "write", path });
  if (state !== "granted") throw new UsageError(`Cannot save to "${path}": writing to it was not allowed`);
  const written = (_: string, value: unknown) => value instanceof Uint8Array ? value.toBase64() : value;
  const text = `${JSON.stringify({ version: VERSION, ...chat }, written, 2)}\n`;
  try {
    await Deno.writeTextFile(path, text, { createNew: !mayReplace, mode: 0o600 });
  } catch (error) {
    throw refused(`Cannot save to "${path}"`, error);
  }
}

/** Reads a conversation. Throws UsageError if the file is too long or is not a conversation. */
export async function loadChat(path: string): Promise<SavedChat> {
  const text = await readBounded(path);
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new UsageError(
      `"${path}" is not a saved conversation: it is not JSON: ${(error as Error).message}`,
    );
  }
  try {
    return parseChat(content);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`"${path}" is not a saved conversation: ${error.message}`);
  }
}

/** Returns a file error as a UsageError, which the conversation survives. */
function refused(what: string, error: unknown): unknown {
  const reason = systemReason(error);
  return reason === undefined ? error : new UsageError(`${what}: ${reason}`);
}

async function readBounded(path: string): Promise<string> {
  let bytes: Uint8Array;
  try {
    const { size, isFile, isDirectory } = await Deno.stat(path);
    if (!isFile && !isDirectory) throw new UsageError(`"${path}" is not an ordinary file`);
    if (size > MAX_BYTES) throw new UsageError(`"${path}" has ${size} bytes; at most ${MAX_BYTES} are read`);
    bytes = await Deno.readFile(path);
  } catch (error) {
    throw refused(`Cannot read "${path}"`, error);
  }
  return new TextDecoder().decode(bytes);
}

/** Checks the content of a conversation file. Throws UsageError that names the fault. */
export function parseChat(content: unknown): SavedChat {
  if (!isObject(content)) throw new UsageError("it must be a JSON object");
  const { version = VERSION, messages, settings = {} } = content;
  if (version !== VERSION) throw new UsageError(`"version" must be ${VERSION} (got ${show(version)})`);
  if (!Array.isArray(messages) || messages.length > MAX_MESSAGES) {
    throw new UsageError(`"messages" must be a list of at most ${MAX_MESSAGES} messages`);
  }
  if (!isObject(settings)) throw new UsageError('"settings" must be a JSON object');
  return { messages: messages.map(parseMessage), settings };
}

function parseMessage(message: unknown, i: number): Message {
  const { role, content, images } = isObject(message) ? message : {};
  if (!ROLES.includes(role)) {
    throw new UsageError(`"messages"[${i}]."role" must be one of ${ROLES.join(", ")}`);
  }
  if (typeof content !== "string") throw new UsageError(`"messages"[${i}]."content" must be a text`);
  const said = { role, content: content.toWellFormed() } as Message;
  if (role !== "user" || images === undefined) return said;
  return { ...said, images: parseImages(images, `"messages"[${i}]."images"`) } as Message;
}

/** Returns the images of a message, given as a list of files in base64. Throws UsageError. */
function parseImages(images: unknown, at: string): Uint8Array<ArrayBuffer>[] {
  if (!Array.isArray(images) || images.length > MAX_IMAGES) {
    throw new UsageError(`${at} must be a list of at most ${MAX_IMAGES} images`);
  }
  return images.map((image) => {
    try {
      return Uint8Array.fromBase64(image);
    } catch {
      throw new UsageError(`${at} must contain only texts in base64`);
    }
  });
}
