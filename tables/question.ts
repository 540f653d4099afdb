import { type Asked, askedValue } from "../jobs/asked.ts";
import { cellJson } from "./cells.ts";
import type { AnswerForm } from "./answers.ts";
import type { WriteOptions } from "./formats.ts";
import type { ReadOptions } from "./open.ts";

/** The question to ask about each row. */
export interface Question {
  /** Prompt for each row: a text with column names in braces. */
  readonly prompt: string;
  /** System message, the same for all rows. */
  readonly system?: string;
  /** Column with an image for each row: its bytes, its path in the folder of images, or a data URL. */
  readonly image?: string;
  /** Request fields besides messages and schema: `max_tokens`, `temperature`, … */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A job whose input is a table. */
export interface TableJob {
  readonly read: ReadOptions;
  readonly question: Question;
  readonly form: AnswerForm;
  readonly write: WriteOptions;
  /** Called for each column that is renamed in the output. */
  readonly onRename?: (from: string, to: string) => void;
}

/** Default maximum tokens of a row's answer. */
export const DEFAULT_MAX_TOKENS = 1024;

/** Fields that change how rows are answered, but not the question. A retry may change them. */
export interface AnswerFields {
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly effort?: string;
}

/** Option names and request fields of AnswerFields. */
const FIELDS = [
  { key: "maxTokens", option: "--max-tokens", field: "max_tokens" },
  { key: "temperature", option: "--temperature", field: "temperature" },
  { key: "effort", option: "--effort", field: "reasoning_effort" },
] as const;

/** Returns the fields of each row's request. At the default temperature 0, equal rows get equal answers. */
export function requestFields(
  { temperature = 0, maxTokens = DEFAULT_MAX_TOKENS, effort }: AnswerFields,
): Record<string, unknown> {
  return {
    temperature,
    max_tokens: maxTokens,
    ...(effort === undefined ? {} : { reasoning_effort: effort }),
  };
}

/** Returns the fields that a job's journal has recorded. */
export function recordedFields(asked: Asked): AnswerFields {
  const { "--max-tokens": maxTokens, "--temperature": temperature, "--effort": effort } = asked;
  return {
    ...(maxTokens === undefined ? {} : { maxTokens: Number(maxTokens) }),
    ...(temperature === undefined ? {} : { temperature: Number(temperature) }),
    ...(effort === undefined ? {} : { effort }),
  };
}

/** Returns the given fields that differ from the job's, as options with their values. */
export function revisedFields(given: AnswerFields, before: AnswerFields): Asked {
  const differing = FIELDS.filter(({ key }) => given[key] !== undefined && given[key] !== before[key]);
  return Object.fromEntries(differing.map(({ key, option }) => [option, String(given[key])]));
}

/** Returns a job's question and its answer fields, as options with their values. */
export function askedOf(
  { read, question: { prompt, system, image, fields }, form: { schema } }: TableJob,
): Asked {
  const said = [
    ["--in-format", read.format],
    ["--separator", read.format === "csv" ? read.separator : undefined],
    ["--prompt", prompt],
    ["--system", system],
    ["--image", image],
    ["--schema", schema && cellJson(schema as Parameters<typeof cellJson>[0])],
    ...FIELDS.map(({ option, field }) => [option, fields[field]?.toString()]),
  ] as const;
  return Object.fromEntries(
    said.flatMap(([option, value]) => value === undefined ? [] : [[option, askedValue(value)]]),
  );
}
