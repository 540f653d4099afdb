/**
 * Settings that several commands share. The engine's option tables define those of the engine and of
 * sampling.
 */
import {
  ADAPTER_OPTIONS,
  COMPUTE_OPTIONS,
  DRAFT_OPTIONS,
  IMAGE_OPTIONS,
  type LoadOption,
  type LoadOptions,
  NUMA_OPTIONS,
  VECTOR_OPTIONS,
} from "../../lib/model.ts";
import { type SAMPLING, SAMPLING_SETTINGS } from "../../lib/options.ts";
import { DEFAULT_CACHE_MB, MAX_CACHE_MB } from "./prompt_cache.ts";
import { choice, count, number, onOff, path, paths, type Setting, text, type Values } from "./settings.ts";

/** Bounds of the options. */
export const MAX_CONTEXT = 16_777_216;
export const MAX_PARALLEL = 1024;
export const MAX_COUNT = 1_000_000;
const MAX_KV_MB = 2 ** 24;

type SettingsOf<Table> = { readonly [Name in keyof Table & keyof LoadOptions]: Setting<LoadOptions[Name]> };

function settingsOf<Table extends Readonly<Record<string, LoadOption>>>(table: Table): SettingsOf<Table> {
  return Object.fromEntries(
    Object.entries(table).map(([name, option]) => [name, settingOf(option)]),
  ) as unknown as SettingsOf<Table>;
}

function settingOf({ placeholder, doc: help, words, max, isFile, isList }: LoadOption): Setting {
  if (isList) return paths(placeholder, { help });
  if (words) return choice(placeholder, words, { help });
  if (max !== undefined) return count({ placeholder, min: 1, max, help });
  return isFile ? path(placeholder, { help }) : text(placeholder, { help });
}

/** Options of the computation for commands. `ISA` is for commands that measure or try one model. */
export const { isa: ISA, ...COMPUTE } = settingsOf(COMPUTE_OPTIONS);
export const NUMA = settingsOf(NUMA_OPTIONS);
export const DRAFTS = settingsOf(DRAFT_OPTIONS);
export const ADAPTERS = settingsOf(ADAPTER_OPTIONS);
export const IMAGES = settingsOf(IMAGE_OPTIONS);
export const VECTORS = settingsOf(VECTOR_OPTIONS);

export const MODEL = path("FILE", { help: "the GGUF model (default: the one that comes with compy)" });

export const CTX = count({
  min: 1,
  max: MAX_CONTEXT,
  help:
    "maximum tokens of a prompt and its answer together (default: the model's own context, as far as memory is free)",
});

export const KV_MB = count({
  min: 1,
  max: MAX_KV_MB,
  help:
    "memory for the KV cache in MB, 10^6 bytes (default: enough for --parallel sequences of --ctx tokens, without --ctx " +
    "of 4096, or what fits if --parallel is not given); sequences take it as they grow and wait when it is full",
});

/** Options of the prompt cache on disk. */
export const PROMPT_CACHE = {
  cacheDisk: path("DIR", {
    writes: true,
    help:
      "store prompts in this folder, so that a later process need not compute them (docs/PROMPT_CACHE.md); CPU only",
  }),
  cacheDiskMb: count({
    min: 1,
    max: MAX_CACHE_MB,
    default: DEFAULT_CACHE_MB,
    help:
      `maximum size of that folder in MB, 10^6 bytes (default: ${DEFAULT_CACHE_MB}); the least recently used prompts are removed`,
  }),
  cacheDiskEager: onOff({ help: "store each prompt at once, not only when it comes a second time" }),
};

/** The commands' default temperature, below the API's default. */
const DEFAULT_TEMPERATURE = 0.7;

type SamplingNames = keyof {
  [Name in keyof typeof SAMPLING as typeof SAMPLING[Name] extends { option: unknown } ? Name : never]: 0;
};

/** Sampling settings of `generate` and `chat`. */
export const SAMPLING_FLAGS = Object.fromEntries(SAMPLING_SETTINGS.flatMap(([name, setting]) => {
  const { kind, doc, option, default: unset } = setting;
  if (option === undefined) return [];
  const { placeholder, ...range } = option;
  const usual = name === "temperature" ? DEFAULT_TEMPERATURE : unset ?? "random";
  const bounds = range.max > MAX_COUNT ? "" : `${range.min} to ${range.max}, `;
  const help = `${doc} (${bounds}default: ${usual})`;
  return [[
    name,
    kind === "whole" ? count({ placeholder, ...range, help }) : number(placeholder, { ...range, help }),
  ]];
})) as unknown as Readonly<Record<SamplingNames, Setting<number | undefined>>>;

/** Setting of commands that check bodies of requests. */
export const STRICT_PARAMETERS = onOff({
  help: "refuse parameters that an endpoint does not support, instead of a warning (docs/API.md)",
});

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

export const EFFORT = choice("WORD", EFFORTS, {
  help: `how much the model thinks before it answers: ${EFFORTS.join(", ")}; ` +
    "none turns thinking off, other words need a chat template that knows them",
});
export const THINK_TOKENS = count({
  min: 0,
  max: MAX_COUNT,
  help: "maximum tokens of thinking; then the answer begins",
});

export const RAW = onOff({
  help:
    "let a terminal obey control characters in the answer, such as colors; they are shown escaped otherwise",
});

/** Returns the sampling settings of a request. */
export function samplingOf(values: Values<typeof SAMPLING_FLAGS>): Values<typeof SAMPLING_FLAGS> {
  const names = Object.keys(SAMPLING_FLAGS) as SamplingNames[];
  return {
    ...Object.fromEntries(names.map((name) => [name, values[name]])) as Values<typeof SAMPLING_FLAGS>,
    temperature: values.temperature ?? DEFAULT_TEMPERATURE,
  };
}
