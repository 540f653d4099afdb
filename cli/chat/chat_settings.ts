import type { ChatOptions } from "../../lib/chat.ts";
import {
  DEFAULT_SAMPLING,
  isSamplingValue,
  SAMPLING_SETTINGS,
  samplingRule,
  type SamplingSetting,
} from "../../lib/options.ts";
import { EFFORT, MAX_COUNT, THINK_TOKENS } from "../shared/engine_settings.ts";
import { UsageError } from "../shared/flags.ts";
import { checked } from "../shared/read_settings.ts";
import { count, type Setting } from "../shared/settings.ts";
import { isObject } from "../../lib/model.ts";

/** The word that users write instead of a value to reset a setting. */
const DEFAULT = "default";

/** One setting of the conversation. */
interface ChatSetting extends Pick<Setting, "accept" | "rule" | "help" | "parse"> {
  readonly option: keyof ChatOptions;
  /** The setting's name in the HTTP API and in saved conversations. */
  readonly field: string;
  /** The value if neither the command line nor the conversation sets one. */
  readonly usual: string;
}

/** Maximum entries of a list or map; these may come from strangers' files. */
const MOST_ENTRIES = 1024;

const acceptTexts = (value: unknown) =>
  Array.isArray(value) && value.length <= MOST_ENTRIES &&
    value.every((text) => typeof text === "string" && text !== "" && text.isWellFormed())
    ? value
    : undefined;

function acceptBiases(value: unknown): ReadonlyMap<number, number> | undefined {
  const entries = isObject(value) ? Object.entries(value) : [];
  const isBias = ([id, bias]: [string, unknown]) => /^\d{1,10}$/.test(id) && Number.isFinite(bias);
  if (!isObject(value) || entries.length > MOST_ENTRIES || !entries.every(isBias)) return undefined;
  return new Map(entries.map(([id, bias]) => [Number(id), bias as number]));
}

/** Returns the value in a text: a number, or a list or map as JSON; undefined for other texts. */
function parseValue(text: string): unknown {
  if (text.trim() !== "" && !Number.isNaN(Number(text))) return Number(text);
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Returns the check for values of a setting, and the rule in words. */
function checksOf(setting: SamplingSetting): Pick<ChatSetting, "accept" | "rule"> {
  if (setting.kind === "texts") {
    return { accept: acceptTexts, rule: 'a JSON list of non-empty texts, such as ["\\n", ":"]' };
  }
  if (setting.kind === "biases") {
    return { accept: acceptBiases, rule: 'JSON of token ids and numbers, such as {"42": -100}' };
  }
  return {
    accept: (value) => isSamplingValue(value, setting) ? value : undefined,
    rule: samplingRule(setting),
  };
}

function ofSampling([option, setting]: typeof SAMPLING_SETTINGS[number]): ChatSetting {
  const { doc, off, default: usual, api: { name: field } } = setting;
  const help = doc.replace(/`(\w+)`/g, (_, name) => nameOf(name));
  return {
    option,
    field,
    help: off === undefined || usual === off ? help : `${help}; ${off} is off`,
    usual: usual === undefined ? "random" : written(usual),
    parse: parseValue,
    ...checksOf(setting),
  };
}

const OTHERS: Readonly<Record<string, ChatSetting>> = {
  n: {
    ...count({ min: 0, max: MAX_COUNT, help: "maximum tokens of an answer" }),
    option: "maxTokens",
    field: "max_tokens",
    usual: "until the answer ends",
  },
  effort: { ...EFFORT, option: "effort", field: "reasoning_effort", usual: "the model's own" },
  "think-tokens": {
    ...THINK_TOKENS,
    option: "thinkingBudget",
    field: "thinking_budget_tokens",
    usual: "no limit",
  },
};

/** All settings of a conversation, by their names for `/set`. */
const SETTINGS: ReadonlyMap<string, ChatSetting> = new Map([
  ...SAMPLING_SETTINGS.map((entry): [string, ChatSetting] => [nameOf(entry[1].api.name), ofSampling(entry)]),
  ...Object.entries(OTHERS),
]);

export const SETTING_NAMES: readonly string[] = [...SETTINGS.keys()];

/** Returns the name for `/set` of an HTTP API field: `top_p` -> `top-p`. */
function nameOf(field: string): string {
  return field.replaceAll("_", "-");
}

/** Returns a value in the form of `/set` and of saved conversations. */
function written(value: unknown): string {
  const plain = value instanceof Map ? Object.fromEntries(value) : value;
  return typeof plain === "string" ? plain : JSON.stringify(plain);
}

/** The settings of a conversation: those of the command line, and changes by `/set`. */
export class ChatSettings {
  #changed: ChatOptions = {};

  constructor(private readonly given: ChatOptions) {}

  /** The options of the next answer. */
  get options(): ChatOptions {
    return { ...this.given, ...this.#changed };
  }

  /**
   * Changes a setting and returns it as a line of text. Throws UsageError for an unknown name or a disallowed value.
   */
  set(name: string, text: string): string {
    if (text === DEFAULT) return this.reset(name);
    const [known, setting] = found(name);
    const value = checked(setting, setting.parse(text), known, text);
    this.#changed = { ...this.#changed, [setting.option]: value };
    return this.#line(known);
  }

  /** Undoes a change, so that the command line's value applies again. Returns the setting as a line of text. */
  reset(name: string): string {
    const [known, { option }] = found(name);
    const { [option]: _, ...rest } = this.#changed;
    this.#changed = rest;
    return this.#line(known);
  }

  /** Returns the name, value and rule of one setting as text. */
  describe(name: string): string {
    const [known, { help, rule, usual }] = found(name);
    return `${this.#line(known)}  ${help}\n  It must be ${rule}; without /set and options: ${usual}\n`;
  }

  /** Returns the current values, one per line. With `isShort`, only values that differ from the defaults. */
  list(isShort = false): string {
    const names = isShort ? SETTING_NAMES.filter((name) => this.#value(name) !== undefined) : SETTING_NAMES;
    return names.map((name) => `  ${this.#line(name)}`).join("");
  }

  /** Returns the values that are set, for a saved conversation. */
  saved(): Record<string, unknown> {
    return Object.fromEntries(
      [...SETTINGS].flatMap(([name, { field }]) => {
        const value = this.#value(name);
        return value === undefined ? [] : [[field, value instanceof Map ? Object.fromEntries(value) : value]];
      }),
    );
  }

  /**
   * Replaces the changes by those of a saved conversation. Returns the names of unknown settings, which are left out.
   * Throws UsageError for a disallowed value, and then changes nothing.
   */
  load(saved: Readonly<Record<string, unknown>>): string[] {
    const byField = new Map([...SETTINGS.values()].map((setting) => [setting.field, setting]));
    const changed: Record<string, unknown> = {};
    const unknown: string[] = [];
    for (const [field, value] of Object.entries(saved)) {
      const setting = byField.get(field);
      if (setting === undefined) unknown.push(field);
      else if (value !== null) changed[setting.option] = checked(setting, value, `"settings"."${field}"`);
    }
    this.#changed = changed;
    return unknown;
  }

  #value(name: string): unknown {
    const { option } = SETTINGS.get(name)!;
    const value: unknown = this.options[option];
    return value === DEFAULT_SAMPLING[option as keyof typeof DEFAULT_SAMPLING] ? undefined : value;
  }

  #line(name: string): string {
    const value = this.#value(name);
    const usual = SETTINGS.get(name)!.usual;
    return `${name}: ${value === undefined ? `${usual} (default)` : written(value)}\n`;
  }
}

/** Returns a setting by its name or by its HTTP API field. */
function found(name: string): [string, ChatSetting] {
  const known = nameOf(name);
  const setting = SETTINGS.get(known);
  if (setting !== undefined) return [known, setting];
  throw new UsageError(`There is no setting "${name}"; there are ${SETTING_NAMES.join(", ")}`);
}
