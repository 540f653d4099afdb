// @ts-check
import { SAMPLING_FIELDS } from "./sampling.js";

/**
 * A conversation's settings, as the user typed them.
 * @typedef {Record<string, string>} Settings
 * @typedef {{ name: string, label: string, hint: string, kind: "number" | "text" | "lines" | "json" | "choice",
 *   min?: number, max?: number, whole?: boolean, choices?: readonly (readonly [string, string])[],
 *   list?: boolean, folded?: boolean, placeholder?: string }} Field
 *   `list`: its JSON is a list; `folded`: the dialog folds it away until it has a value
 */

/** @type {readonly Field[]} */
export const FIELDS = [
  {
    name: "system",
    label: "System prompt",
    kind: "text",
    hint: "What the model is told before the conversation.",
    placeholder: "You are a helpful assistant.",
  },
  ...SAMPLING_FIELDS,
  {
    name: "max_tokens",
    label: "Most tokens",
    kind: "number",
    min: 1,
    max: 2 ** 31 - 1,
    whole: true,
    placeholder: "as many as fit",
    hint: "Where an answer is cut.",
  },
  {
    name: "reasoning_effort",
    label: "Thinking",
    kind: "choice",
    hint: "How much the model thinks first, where it can.",
    choices: [
      ["", "the model's own"],
      ["none", "none"],
      ["minimal", "minimal"],
      ["low", "low"],
      ["medium", "medium"],
      ["high", "high"],
      ["xhigh", "very high"],
      ["max", "as much as possible"],
    ],
  },
  { name: "stop", label: "Stop texts", kind: "lines", hint: "Up to four, one a line. Each ends the answer." },
  {
    name: "response_format",
    label: "Response format",
    kind: "json",
    hint: "A JSON schema that answers must follow; empty for plain text.",
    placeholder: '{ "type": "object", "properties": { … } }',
  },
  {
    name: "tools",
    label: "Tools",
    kind: "json",
    list: true,
    hint: "A list of functions, each with name, description and parameters. You answer the calls by hand.",
    placeholder: '[{ "name": "weather", "parameters": { … } }]',
  },
];

/**
 * Returns what is wrong with the typed text, or undefined if it is valid.
 * @param {Field} field
 * @param {string} typed
 * @returns {string | undefined}
 */
export function problemOf(field, typed) {
  const text = typed.trim();
  if (text === "") return undefined;
  if (field.kind === "number") {
    const value = Number(text);
    const { min = -Infinity, max = Infinity } = field;
    if (!Number.isFinite(value)) return "must be a number";
    if (field.whole && !Number.isInteger(value)) return "must be a whole number";
    if (value < min || value > max) return `must be ${min} to ${max}`;
  }
  if (field.kind === "lines" && linesOf(typed).length > 4) return "must be at most 4 lines";
  if (field.kind === "json") {
    const value = parsed(text);
    if (value === undefined) return "must be JSON";
    if (field.list) return Array.isArray(value) ? toolProblem(field, value) : "must be a list, in [ ]";
    if (typeof value !== "object" || value === null || Array.isArray(value)) return "must be a JSON object";
  }
  return undefined;
}

/**
 * @param {Field} field
 * @param {unknown[]} entries
 */
function toolProblem({ name }, entries) {
  if (name !== "tools") return undefined;
  const nameless = entries.findIndex((tool) => typeof functionOf(tool)?.name !== "string");
  return nameless < 0 ? undefined : `entry ${nameless + 1} has no name`;
}

/**
 * Returns the request fields. Invalid settings are omitted; the settings dialog shows what is wrong.
 * @param {Settings} settings
 * @returns {Record<string, unknown>}
 */
export function requestFields(settings) {
  /** @type {Record<string, unknown>} */
  const fields = {};
  for (const field of FIELDS) {
    const typed = settings[field.name] ?? "";
    if (typed.trim() === "" || field.name === "system" || problemOf(field, typed)) continue;
    fields[field.name] = valueOf(field, typed);
  }
  return fields;
}

/**
 * @param {Field} field
 * @param {string} typed
 */
function valueOf(field, typed) {
  switch (field.kind) {
    case "number":
      return Number(typed);
    case "lines":
      return linesOf(typed);
    case "json": {
      const value = parsed(typed);
      if (field.name === "tools") {
        return value.map((/** @type {unknown} */ tool) => ({ type: "function", function: functionOf(tool) }));
      }
      if (field.name !== "response_format") return value;
      return { type: "json_schema", json_schema: { name: "answer", schema: value } };
    }
    default:
      return typed.trim();
  }
}

/**
 * Returns the function of an entry in the tools list, which may be wrapped as the API expects.
 * @param {any} tool
 * @returns {{ name?: unknown } | undefined}
 */
function functionOf(tool) {
  if (typeof tool !== "object" || tool === null) return undefined;
  return tool.type === "function" && tool.function ? tool.function : tool;
}

/** @param {string} typed */
function linesOf(typed) {
  return typed.split("\n").filter((line) => line !== "");
}

/**
 * @param {string} text
 * @returns {any}
 */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
