import {
  type Asked,
  type LineChanges,
  type OpenInput,
  openJsonLines,
  type Revision,
} from "../../lib/batch/jobs.ts";
import {
  type AnswerFields,
  AnswerForm,
  DEFAULT_MAX_TOKENS,
  isSeparator,
  openTableInput,
  OUTPUT_FORMATS,
  type OutputFormat,
  outputFormatOf,
  recordedFields,
  requestFields,
  revisedFields,
  separatorOf,
  TABLE_FORMATS,
  tableFormatOf,
  TEXT_COLUMN,
} from "../../lib/tables.ts";
import { bodyExaminer } from "../../lib/batch/check_body.ts";
import type { BatchWorld } from "./world.ts";
import { SAMPLING } from "../../lib/options.ts";
import { EFFORT } from "../shared/engine_settings.ts";
import { UsageError } from "../shared/flags.ts";
import { choice, count, flagOf, helpOf, number, path, text, type Values } from "../shared/settings.ts";
import { jsonLine } from "../shared/escape.ts";

/** Options for the rows of a table. */
export const TABLE_SETTINGS = {
  prompt: text("TEXT", {
    help:
      "the question for each row; {column} stands for its cell, {{ and }} for braces (default for .txt: " +
      `{${TEXT_COLUMN}}, the line itself)`,
  }),
  image: text("COLUMN", {
    help:
      "a column with an image for each row, which comes before the prompt: bytes (Parquet), or paths in the folder of --images",
  }),
  system: text("TEXT", { help: "the system message, the same for all rows" }),
  schema: path("FILE", {
    help: "a JSON schema that the answers follow; each field of an object becomes a column",
  }),
  maxTokens: count({
    min: 1,
    max: 10_000_000,
    help: `maximum tokens of an answer (default: ${DEFAULT_MAX_TOKENS})`,
  }),
  temperature: number("T", {
    ...SAMPLING.temperature.api,
    help: `${SAMPLING.temperature.doc} (0 to 2, default: 0)`,
  }),
  effort: EFFORT,
  prefix: text("TEXT", {
    help: "a prefix for the names of new columns (answer or the schema's fields, and error)",
  }),
  separator: text("S", {
    help: "the separator of a CSV file: one character, or tab (default: a comma, or a tab for .tsv)",
  }),
  inFormat: choice("F", TABLE_FORMATS, {
    help: `the input's format: ${TABLE_FORMATS.join(", ")} (default: by the ending of IN, else jsonl)`,
  }),
  outFormat: choice("F", OUTPUT_FORMATS, {
    help: `the output's format: ${OUTPUT_FORMATS.join(", ")} (default: by the ending of OUT)`,
  }),
};

type TableValues = Values<typeof TABLE_SETTINGS>;

/** Help text about the default token limit of a table's answers. */
export const BOUND_NOTE =
  `Each answer may have at most ${DEFAULT_MAX_TOKENS} tokens; --max-tokens N gives another bound`;

export const TABLE_HELP =
  `Rows of a table (IN.csv, .tsv, .parquet, .txt with one prompt per line, or with --prompt .jsonl with one object per line):
${helpOf(TABLE_SETTINGS).trimEnd()}`;

/** Help for verbs that repeat the table options of the run. */
export const SAME_TABLE_HELP =
  "  For a table: the options of batch run that describe the question: --prompt, --system, --schema, …";

/** A job described as JSONL or, with table options, as a table. */
export interface JobShape {
  /** Whether the job's input is a table. */
  readonly isTable: boolean;
  readonly openInput: OpenInput;
  /** Returns a failure in place of an answer that does not fit the table's schema. */
  readonly judge?: LineChanges["judge"];
  /** The options that a retry changes. */
  readonly revision?: Revision;
}

const JSONL: JobShape = { isTable: false, openInput: openJsonLines };

/**
 * Returns the job that the options describe for this input. A check needs no output format. `recorded`: options of a
 * job that has begun; they still apply, and changed options become a revision.
 */
export async function jobShape(
  values: TableValues,
  input: string,
  output: string | undefined,
  note: (text: string) => void,
  recorded?: Asked,
): Promise<JobShape> {
  const format = values.inFormat ?? tableFormatOf(input) ?? "jsonl";
  if (format === "jsonl" && values.prompt === undefined) {
    const names = Object.keys(TABLE_SETTINGS) as (keyof TableValues)[];
    const given = names.find((name) => name !== "inFormat" && values[name] !== undefined);
    if (given === undefined) return JSONL;
    throw new UsageError(
      `--${
        flagOf(given)
      } is for rows of tables, but "${input}" is read as requests, which contain these settings; give ` +
        "--prompt if its lines are rows, or --in-format if it is another table",
    );
  }
  const prompt = values.prompt ?? (format === "text" ? `{${TEXT_COLUMN}}` : undefined);
  if (prompt === undefined) {
    throw new UsageError('--prompt is missing: the question for each row, such as "Translate: {text}"');
  }
  const schema = values.schema === undefined ? undefined : await readSchema(values.schema);
  const form = new AnswerForm(schema);
  const separator = separatorOption(values);
  const renamed = new Set<string>();
  const given = fieldsOf(values);
  const before = recorded === undefined ? given : recordedFields(recorded);
  const { system, image } = values;
  const question = { prompt, system, image, fields: requestFields(before) };
  const fields = requestFields({ ...before, ...given });
  const asked = revisedFields(given, before);
  const open = openTableInput({
    read: { format, separator: separator ?? separatorOf(input) },
    question,
    form,
    write: {
      format: output === undefined ? "jsonl" : outputFormat(values, output),
      separator: separator ?? separatorOf(output ?? ""),
      prefix: values.prefix,
    },
    onRename: (from, to) => {
      if (output === undefined || renamed.has(to)) return;
      renamed.add(to);
      note(
        `The table already has a column "${from}": the new column is named "${to}" (--prefix changes the names)`,
      );
    },
  });
  return {
    isTable: true,
    openInput: open,
    judge: form.judge,
    ...(Object.keys(asked).length > 0 && { revision: { asked, revise: (body) => ({ ...body, ...fields }) } }),
  };
}

/** Returns a function that prints a note next to the progress. */
export function noteTo({ host }: BatchWorld, json: boolean): (message: string) => void {
  return (message) => json ? host.out(jsonLine({ event: "note", message })) : host.err(`${message}\n`);
}

function outputFormat({ outFormat }: TableValues, output: string): OutputFormat {
  const found = outFormat ?? outputFormatOf(output);
  if (found !== undefined) return found;
  throw new UsageError(
    `--out must end in .csv, .tsv, .parquet or .jsonl (got "${output}"), or say --out-format`,
  );
}

/** Returns the separator; undefined if the file names decide it. */
function separatorOption({ separator: given }: TableValues): string | undefined {
  const separator = given === "tab" || given === "\\t" ? "\t" : given;
  if (separator === undefined || isSeparator(separator)) return separator;
  throw new UsageError(`--separator must be one character other than a quote, or tab (got "${given}")`);
}

/** Returns only the answer fields that the options set. */
function fieldsOf({ maxTokens, temperature, effort }: TableValues): AnswerFields {
  return {
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(effort === undefined ? {} : { effort }),
  };
}

/**
 * Returns the JSON schema of a file. Throws UsageError for a file that is not a schema, or a schema that no
 * answer can match.
 */
async function readSchema(path: string): Promise<Record<string, unknown>> {
  const refuse = (why: string) => new UsageError(`Cannot use --schema "${path}": ${why}`);
  let schema: unknown;
  try {
    schema = JSON.parse(await Deno.readTextFile(path));
  } catch (error) {
    throw refuse((error as Error).message);
  }
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
    throw refuse("it must be a JSON object");
  }
  const form = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  const body = { messages: [{ role: "user", content: "?" }], response_format: form };
  const wrong = await bodyExaminer()({ customId: "schema", url: "/v1/chat/completions", body });
  if (wrong !== undefined) throw refuse(wrong.message);
  return schema as Record<string, unknown>;
}
