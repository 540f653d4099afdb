// @ts-check
import { imagesOf, newConversation } from "./conversation.js";
import { blobOf, isImageId, isThumb, newImageId } from "./images.js";
import { FIELDS } from "./settings.js";
import { everyMessage } from "./versions.js";

/*
 * Export and import of conversations. A file to import may come from a stranger: it is checked as a whole before
 * anything of it is kept, its size and depth are bounded, and only known fields are read.
 */

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {(value: any, at: string) => any} Read checks a value and copies it; `at` is where it is in the file
 */

const FORMAT = "compy conversations";
const MAX_BYTES = 50_000_000;
/** Maximum characters of all images' data URLs in a file. */
export const MAX_IMAGES = 40_000_000;
/** Maximum number of entries of a list. */
const MAX_ENTRIES = 10_000;
/** Maximum depth of versions within versions. */
const MAX_DEPTH = 100;
const MAX_TITLE = 200;
/** The largest time that a Date can have. */
const MAX_TIME = 8.64e15;

/** @type {Read} */
function text(value, at) {
  if (typeof value !== "string") throw new Error(`${at} is not a text.`);
  return value;
}

/** @type {Read} */
function number(value, at) {
  if (typeof value !== "number" || value < 0) throw new Error(`${at} is not a number from 0 on.`);
  return value;
}

/** @param {Read} read */
function nullable(read) {
  return (/** @type {any} */ value, /** @type {string} */ at) => value === null ? null : read(value, at);
}

/** @param {Read} read */
function list(read) {
  return (/** @type {any} */ value, /** @type {string} */ at) => {
    if (!Array.isArray(value)) throw new Error(`${at} is not a list.`);
    if (value.length > MAX_ENTRIES) throw new Error(`${at} has more than ${MAX_ENTRIES} entries.`);
    return value.map((entry, i) => read(entry, `${at}[${i}]`));
  };
}

/**
 * @param {any} value
 * @param {string} at
 */
function checkObject(value, at) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${at} is not an object.`);
  }
}

/** @param {Record<string, Read>} fields */
function object(fields) {
  return (/** @type {any} */ value, /** @type {string} */ at) => {
    checkObject(value, at);
    return Object.fromEntries(
      Object.entries(fields).map(([name, read]) => [name, read(value[name], `${at}.${name}`)]),
    );
  };
}

/** @type {Read} */
function image(value, at) {
  const { id, name, thumb } = object({ id: text, name: text, thumb: text })(value, at);
  if (!isImageId(id) || !isThumb(thumb)) throw new Error(`${at} is not an image of this page.`);
  return { id, name: name.slice(0, MAX_TITLE), thumb };
}

/** @type {Record<string, Read>} */
const MESSAGES = {
  user: (value, at) => ({
    ...object({ role: text, content: text })(value, at),
    ...(value.images === undefined ? {} : { images: list(image)(value.images, `${at}.images`) }),
  }),
  tool: object({ role: text, callId: text, name: text, content: text }),
  assistant: object({
    role: text,
    content: text,
    reasoning: text,
    calls: list(object({ id: text, name: text, arguments: text })),
    model: text,
    finish: nullable(text),
    usage: nullable(object({ promptTokens: number, answerTokens: number, cachedTokens: number })),
    tokensPerSecond: nullable(number),
    firstTokenMs: nullable(number),
    thinkingMs: nullable(number),
    trouble: nullable(object({ text, advice: text, kind: text })),
  }),
};

/** @type {Read} */
function message(value, at) {
  checkObject(value, at);
  if (!Object.hasOwn(MESSAGES, value.role)) throw new Error(`${at}.role is not user, tool or assistant.`);
  return MESSAGES[value.role](value, at);
}

/**
 * Reads messages and their versions (versions.js).
 * @param {any} value
 * @param {string} at
 * @param {number} first index of the first message
 * @param {number} depth
 * @returns {import("./versions.js").Branch}
 */
function branch(value, at, first, depth) {
  if (depth > MAX_DEPTH) throw new Error(`${at} is nested too deep.`);
  checkObject(value, at);
  const messages = list(message)(value.messages, `${at}.messages`);
  if (value.forks === undefined) return { messages };
  checkObject(value.forks, `${at}.forks`);
  const forks = Object.entries(value.forks).map(([key, versions]) => {
    const [index, where] = [Number(key), `${at}.forks.${key.slice(0, 20)}`];
    if (!/^\d{1,9}$/.test(key) || index < first || index > first + messages.length) {
      throw new Error(`${where} is not the number of a message.`);
    }
    const branches = list(nullable((version, at) => branch(version, at, index, depth + 1)))(versions, where);
    if (branches.filter((version) => version === null).length !== 1) {
      throw new Error(`${where} must have one null, in place of the version that is shown.`);
    }
    return [index, branches];
  });
  return { messages, forks: Object.fromEntries(forks) };
}

/** @type {Read} */
function conversation(value, at) {
  checkObject(value, at);
  const { id, title, created, updated, model, settings } = value;
  checkObject(settings, `${at}.settings`);
  const typed = FIELDS.filter(({ name }) => Object.hasOwn(settings, name)).map((
    { name },
  ) => [name, text(settings[name], `${at}.settings.${name}`)]);
  const times = [number(created, `${at}.created`), number(updated, `${at}.updated`)];
  const made = newConversation(
    text(model, `${at}.model`),
    Object.fromEntries(typed),
    Math.min(times[0], MAX_TIME),
  );
  return {
    ...made,
    id: /^[0-9a-f]{16}$/.test(text(id, `${at}.id`)) ? id : made.id,
    title: text(title, `${at}.title`).slice(0, MAX_TITLE) || made.title,
    named: value.named === true,
    updated: Math.min(times[1], MAX_TIME),
    ...branch(value, at, 0, 0),
  };
}

/**
 * Returns conversations as a file that can be imported, with all versions.
 * @param {readonly Conversation[]} conversations
 * @param {ReadonlyMap<string, string>} [images] data URLs of the images, by their ids
 */
export function exportedFile(conversations, images = new Map()) {
  const files = images.size === 0 ? {} : { images: Object.fromEntries(images) };
  return `${JSON.stringify({ format: FORMAT, version: 1, conversations, ...files }, null, 1)}\n`;
}

/**
 * Throws an Error if a file is too large to read.
 * @param {number} bytes
 */
export function checkSize(bytes) {
  if (bytes > MAX_BYTES) throw new Error(`The file is larger than ${MAX_BYTES / 1e6} MB.`);
}

/**
 * Returns the conversations of a file, and its images by id. Images get new ids, so that an imported image never
 * replaces another one. Throws an Error that says what is wrong with the file.
 * @param {string} text
 * @returns {{ conversations: Conversation[], images: Map<string, Blob> }}
 */
export function importedFile(text) {
  checkSize(text.length);
  /** @type {any} */
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (file?.format !== FORMAT || file.version !== 1) {
    throw new Error("The file has no conversations that this page exported.");
  }
  /** @type {Conversation[]} */
  const conversations = list(conversation)(file.conversations, "conversations");
  const files = Object(file.images);
  /** @type {Map<string, string>} */
  const ids = new Map();
  /** @type {Map<string, Blob>} */
  const images = new Map();
  for (const image of imagesOf(conversations.flatMap((each) => [...everyMessage(each)]))) {
    const id = ids.get(image.id) ?? newImageId();
    const blob = ids.has(image.id) || !Object.hasOwn(files, image.id) ? undefined : blobOf(files[image.id]);
    if (blob) images.set(id, blob);
    ids.set(image.id, id);
    image.id = id;
  }
  return { conversations, images };
}

/**
 * Returns the shown version of a conversation as Markdown.
 * @param {Conversation} conversation
 */
export function asMarkdown({ title, messages, settings }) {
  const system = (settings.system ?? "").trim();
  const parts = messages.map((message) => {
    if (message.role === "user") {
      const names = (message.images ?? []).map(({ name }) => `Image: ${name}`);
      return ["## You", ...names, message.content].filter(Boolean).join("\n\n");
    }
    if (message.role === "tool") return `## Result of ${message.name}\n\n${fenced("", message.content)}`;
    const { model, reasoning, content, calls } = message;
    return [
      `## ${model || "Answer"}`,
      reasoning !== "" && `<details>\n<summary>Thinking</summary>\n\n${reasoning.trim()}\n\n</details>`,
      content.trim(),
      ...calls.map((call) => `Calls ${call.name}:\n\n${fenced("json", call.arguments)}`),
    ].filter(Boolean).join("\n\n");
  });
  return `${
    [`# ${title}`, system && `## System prompt\n\n${system}`, ...parts].filter(Boolean).join("\n\n")
  }\n`;
}

/**
 * @param {string} language
 * @param {string} text
 */
function fenced(language, text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
