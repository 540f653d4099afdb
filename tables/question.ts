import { type Asked, askedValue } from "../jobs/asked.ts";
import { cellJson } from "./cells.ts";
import type { TableJob } from "./input.ts";

/** Tokens that the answer to a row may have, where nothing else is asked for. */
export const DEFAULT_MAX_TOKENS = 1024;

/** How rows are answered. It says nothing of what they are asked, so that a retry may have it otherwise. */
export interface AnswerFields {
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly effort?: string;
}

/** The options that AnswerFields stand for, and the fields of a request. */
const FIELDS = [
  { key: "maxTokens", option: "--max-tokens", field: "max_tokens" },
  { key: "temperature", option: "--temperature", field: "temperature" },
  { key: "effort", option: "--effort", field: "reasoning_effort" },
] as const;

/** The fields of each row's request; at temperature 0 a row has the same answer each time. */
export function requestFields(
  { temperature = 0, maxTokens = DEFAULT_MAX_TOKENS, effort }: AnswerFields,
): Record<string, unknown> {
  return {
    temperature,
    max_tokens: maxTokens,
    ...(effort === undefined ? {} : { reasoning_effort: effort }),
  };
}

/** The fields of a job whose journal has recorded them. */
export function recordedFields(asked: Asked): AnswerFields {
  const { "--max-tokens": maxTokens, "--temperature": temperature, "--effort": effort } = asked;
  return {
    ...(maxTokens === undefined ? {} : { maxTokens: Number(maxTokens) }),
    ...(temperature === undefined ? {} : { temperature: Number(temperature) }),
    ...(effort === undefined ? {} : { effort }),
  };
}

/** Of the given fields those that are not as the job had them, as options with their values. */
export function revisedFields(given: AnswerFields, before: AnswerFields): Asked {
  const differing = FIELDS.filter(({ key }) => given[key] !== undefined && given[key] !== before[key]);
  return Object.fromEntries(differing.map(({ key, option }) => [option, String(given[key])]));
}

/** What a job asks of each row, as options and their values. */
export function askedOf({ read, question: { prompt, system, fields }, form: { schema } }: TableJob): Asked {
  const said = [
    ["--in-format", read.format],
    ["--separator", read.format === "csv" ? read.separator : undefined],
    ["--prompt", prompt],
    ["--system", system],
    ["--schema", schema && cellJson(schema as Parameters<typeof cellJson>[0])],
    ...FIELDS.map(({ option, field }) => [option, fields[field]?.toString()]),
  ] as const;
  return Object.fromEntries(
    said.flatMap(([option, value]) => value === undefined ? [] : [[option, askedValue(value)]]),
  );
}
