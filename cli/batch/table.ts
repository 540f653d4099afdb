import {
  type Asked,
  type Execute,
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
import { type Flags, UsageError } from "../shared/flags.ts";
import { EFFORTS } from "../shared/model.ts";

/** Options that say what the rows of a table are asked, and how it is read. */
const QUESTION_FLAGS = [
  "prompt",
  "system",
  "schema",
  "max-tokens",
  "temperature",
  "effort",
  "separator",
  "prefix",
];

export const TABLE_FLAGS = [...QUESTION_FLAGS, "in-format", "out-format"];

/** Tells the default limit of a table's answers. */
export const BOUND_NOTE =
  `Each answer may have at most ${DEFAULT_MAX_TOKENS} tokens; --max-tokens N gives another bound`;

export const TABLE_HELP =
  `Rows of a table (IN.csv, .tsv, .parquet, .txt with a prompt a line, or with --prompt .jsonl with an object a line):
  --prompt TEXT    what each row is asked; {column} stands for its cell, {{ and }} for braces
                   (default for .txt: {${TEXT_COLUMN}}, the line itself)
  --system TEXT    said before it, the same for all rows
  --schema FILE    a JSON schema that the answers follow; of an object, each field gets a column
  --max-tokens N   tokens that an answer may have (default: ${DEFAULT_MAX_TOKENS})
  --temperature T  of the sampling, 0 to 2 (default 0: the same answers each time)
  --effort WORD    how much the model thinks before it answers: ${EFFORTS.join(", ")}
  --prefix TEXT    put before the names of new columns (answer or the schema's fields, and error)
  --separator S    of a CSV file: one character, or tab (default: a comma; for .tsv a tab)
  --in-format F    ${TABLE_FORMATS.join(", ")} (default: what IN's ending says, else jsonl)
  --out-format F   ${OUTPUT_FORMATS.join(", ")} (default: what OUT's ending says)`;

/** A job as JSONL or, by its options, of a table. */
export interface JobShape {
  /** Whether it is a table. */
  readonly isTable: boolean;
  readonly openInput: OpenInput;
  /** Wraps `execute`: answers that do not fit the table's schema fail. */
  readonly judged: (execute: Execute) => Execute;
  /** Options that a retry changes. */
  readonly revision?: Revision;
}

const JSONL: JobShape = { isTable: false, openInput: openJsonLines, judged: (execute) => execute };

/**
 * Returns the job that the options describe for this input. Without an output, as for a check, no output format is needed.
 * `recorded` holds the options of a job that has begun: they stay in force, and options that differ become a revision.
 */
export async function jobShape(
  flags: Flags,
  input: string,
  output: string | undefined,
  note: (text: string) => void,
  recorded?: Asked,
): Promise<JobShape> {
  const format = flags.choice("in-format", TABLE_FORMATS) ?? tableFormatOf(input) ?? "jsonl";
  if (format === "jsonl" && !flags.has("prompt")) {
    const given = TABLE_FLAGS.find((name) => name !== "in-format" && flags.has(name));
    if (given === undefined) return JSONL;
    throw new UsageError(
      `--${given} is for rows of tables, and "${input}" is read as requests, whose lines say all that themselves; give ` +
        "--prompt if its lines are rows, or --in-format if it is another table",
    );
  }
  const prompt = flags.text("prompt") ?? (format === "text" ? `{${TEXT_COLUMN}}` : undefined);
  if (prompt === undefined) {
    throw new UsageError('--prompt is missing: what each row is asked, such as "Translate: {text}"');
  }
  const schemaFile = flags.text("schema");
  const schema = schemaFile === undefined ? undefined : await readSchema(schemaFile);
  const form = new AnswerForm(schema);
  const separator = separatorFlag(flags);
  const renamed = new Set<string>();
  const given = fieldsOf(flags);
  const before = recorded === undefined ? given : recordedFields(recorded);
  const question = { prompt, system: flags.text("system"), fields: requestFields(before) };
  const fields = requestFields({ ...before, ...given });
  const asked = revisedFields(given, before);
  const open = openTableInput({
    read: { format, separator: separator ?? separatorOf(input) },
    question,
    form,
    write: {
      format: output === undefined ? "jsonl" : outputFormat(flags, output),
      separator: separator ?? separatorOf(output ?? ""),
      prefix: flags.text("prefix"),
    },
    onRename: (from, to) => {
      if (output === undefined || renamed.has(to)) return;
      renamed.add(to);
      note(
        `The table has a column "${from}" already: what is new is called "${to}" (--prefix gives other names)`,
      );
    },
  });
  return {
    isTable: true,
    openInput: open,
    judged: (execute) => form.judged(execute),
    ...(Object.keys(asked).length > 0 && { revision: { asked, revise: (body) => ({ ...body, ...fields }) } }),
  };
}

/** Tells what is worth a line beside the progress. */
export function noteTo({ host }: BatchWorld, { json }: Flags): (message: string) => void {
  return (message) =>
    json ? host.out(`${JSON.stringify({ event: "note", message })}\n`) : host.err(`${message}\n`);
}

function outputFormat(flags: Flags, output: string): OutputFormat {
  const found = flags.choice("out-format", OUTPUT_FORMATS) ?? outputFormatOf(output);
  if (found !== undefined) return found;
  throw new UsageError(
    `--out must end in .csv, .tsv, .parquet or .jsonl (got "${output}"), or say --out-format`,
  );
}

/** undefined where it is left to the files' names. */
function separatorFlag(flags: Flags): string | undefined {
  const given = flags.text("separator");
  const separator = given === "tab" || given === "\\t" ? "\t" : given;
  if (separator === undefined || isSeparator(separator)) return separator;
  throw new UsageError(`--separator must be one character but a quote, or tab (got "${given}")`);
}

/** Only what is given. */
function fieldsOf(flags: Flags): AnswerFields {
  const maxTokens = flags.count("max-tokens", 1, 10_000_000);
  const temperature = flags.number("temperature", 0, 2);
  const effort = flags.choice("effort", EFFORTS);
  return {
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(effort === undefined ? {} : { effort }),
  };
}

/** Throws UsageError for a file that is no schema, or one that no answer can follow. */
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
