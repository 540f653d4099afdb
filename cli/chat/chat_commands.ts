import { basename, dirname } from "@std/path";
import { helpEntry } from "../shared/settings.ts";
import { SETTING_NAMES } from "./chat_settings.ts";

/** The line that begins and ends a message of several lines. */
export const FENCE = '"""';

/** A command of the conversation. */
export interface ChatCommand {
  /** Placeholders of the command's arguments, for the help; undefined if it takes none. */
  readonly takes?: string;
  readonly help: string;
  readonly example?: string;
}

export const CHAT_COMMANDS: Readonly<Record<string, ChatCommand>> = {
  "/clear": { help: "start a new conversation" },
  "/retry": { help: "answer the last message again" },
  "/undo": { help: "remove the last message and its answer" },
  "/system": {
    takes: "TEXT",
    help: "set the system message from here on; without TEXT, remove it",
    example: "/system You answer in one sentence.",
  },
  "/image": {
    takes: "FILE",
    help: "attach a PNG, JPEG, WebP or GIF image to the next message; without FILE, remove attached images",
    example: "/image hen.png",
  },
  "/set": {
    takes: "NAME VALUE",
    help: "change a setting; VALUE default resets it; without VALUE, explain it; without NAME, list all",
    example: "/set temperature 0.2",
  },
  "/unset": {
    takes: "NAME",
    help: "reset a setting, like /set NAME default",
    example: "/unset temperature",
  },
  "/show": { help: "show the changed settings, the system message and the used part of the context" },
  "/save": {
    takes: "FILE",
    help: "save the conversation and its settings as JSON; asks for the permission to write",
    example: "/save hens.json",
  },
  "/load": {
    takes: "FILE",
    help: "continue a saved conversation, with its settings",
    example: "/load hens.json",
  },
  "/help": { help: "print this list" },
  "/bye": { help: "leave, as Ctrl-D and two Ctrl-C do" },
};

const COMMAND_HELP = Object.entries(CHAT_COMMANDS)
  .map(([name, { takes, help }]) => helpEntry(`  ${takes === undefined ? name : `${name} ${takes}`}`, help))
  .join("");

const EXAMPLES = Object.values(CHAT_COMMANDS).flatMap(({ example }) => example ? [`  ${example}\n`] : []);

/** The text that `/help` prints. */
export const CONVERSATION_HELP = `${COMMAND_HELP}Examples:
${EXAMPLES.join("")}  /set logit-bias {"42": -100}
Several lines: between ${FENCE} and ${FENCE}, or pasted. A message that begins with /: put a space before it.
Ctrl-C stops an answer and keeps its beginning; Ctrl-C twice leaves. Tab completes commands and settings.
`;

/**
 * Returns the candidates that complete a line, and the word that they replace. Completes commands, setting names after
 * /set and /unset, and files after /image.
 */
export function completions(line: string): [candidates: string[], word: string] {
  const [, path] = /^\/image\s+(.*)$/.exec(line) ?? [];
  if (path !== undefined) return [imagesAt(path), path];
  const [, before, word] = /^(\/(?:un)?set\s+)?(\S*)$/.exec(line) ?? [];
  if (word === undefined || (before === undefined && !word.startsWith("/"))) return [[], line];
  const all = before === undefined ? Object.keys(CHAT_COMMANDS) : SETTING_NAMES;
  return [all.filter((name) => name.startsWith(word)).map((name) => `${name} `), word];
}

const IMAGE_NAME = /\.(?:png|jpe?g|webp|gif)$/i;
/** Maximum number of a folder's entries to read. */
const MOST_ENTRIES = 10_000;

/** Returns the paths of images and folders that begin with `path`, without names that have control characters. */
function imagesAt(path: string): string[] {
  const folder = path === "" || path.endsWith("/") ? path : dirname(path);
  const start = path.endsWith("/") ? "" : basename(path);
  const found: string[] = [];
  try {
    let entries = 0;
    for (const { name, isDirectory } of Deno.readDirSync(folder || ".")) {
      if (++entries > MOST_ENTRIES) break;
      const hidden = name.startsWith(".") && !start.startsWith(".");
      if (!name.startsWith(start) || hidden || /\p{C}/u.test(name)) continue;
      const whole = path.slice(0, path.length - start.length) + name;
      if (isDirectory) found.push(`${whole}/`);
      else if (IMAGE_NAME.test(name)) found.push(whole);
    }
  } catch {
    // Without a readable folder, there is nothing to suggest.
  }
  return found.sort();
}
