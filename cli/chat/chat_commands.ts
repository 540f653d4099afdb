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
 * Returns completions of a command, or of the setting's name after /set and /unset: the candidates and the word they
 * replace.
 */
export function completions(line: string): [candidates: string[], word: string] {
  const [, before, word] = /^(\/(?:un)?set\s+)?(\S*)$/.exec(line) ?? [];
  if (word === undefined || (before === undefined && !word.startsWith("/"))) return [[], line];
  const all = before === undefined ? Object.keys(CHAT_COMMANDS) : SETTING_NAMES;
  return [all.filter((name) => name.startsWith(word)).map((name) => `${name} `), word];
}
