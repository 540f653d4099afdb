import { isModelFileName } from "../engine/models/folder.ts";
import { PullError } from "./errors.ts";

/** Maximum characters of a hub file's path. */
const MAX_PATH = 512;
// deno-lint-ignore no-control-regex
const CONTROL = /[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;

/** Returns untrusted text for a message, quoted and shortened. */
export function quote(text: string): string {
  const short = text.length > 100 ? `${text.slice(0, 97)}...` : text;
  return JSON.stringify(short).replace(
    /[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Returns whether a hub's file path stays within its repository and is unambiguous on all systems. */
export function isSafePath(path: string): boolean {
  if (path.length === 0 || path.length > MAX_PATH || CONTROL.test(path)) return false;
  if (path.includes("\\") || path.startsWith("/")) return false;
  return path.split("/").every((part) => part !== "" && part !== "." && part !== "..");
}

/**
 * Returns the file's name in the folder of models. Throws PullError for a name that the folder would not
 * offer.
 */
export function localName(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  if (isModelFileName(name)) return name;
  throw new PullError(
    "PULL_SOURCE",
    `${
      quote(name)
    } cannot be the name of a model's file: it must be letters, digits and "._+-", begin with a letter or ` +
      `a digit, have at most 128 characters and end in ".gguf"; name it with --as NAME`,
  );
}

/** Returns a valid model name from `--as` or `rm`, without folders and endings. Throws PullError. */
export function checkModelName(name: string): string {
  const plain = name.endsWith(".gguf") ? name.slice(0, -".gguf".length) : name;
  if (isModelFileName(`${plain}.gguf`)) return plain;
  throw new PullError(
    "PULL_SOURCE",
    `Invalid name ${quote(name)}: must be letters, digits and "._+-" and begin with a letter or a digit`,
  );
}
