import type { OpenInput } from "../../jobs/input.ts";
import type { LineChanges } from "../../jobs/run/runner.ts";
import { CompyError, refuse } from "../errors.ts";
import { checkOptions, type OptionTable } from "../options.ts";

/**
 * The question that a batch asks about each row of a table, and the file formats. A missing format follows
 * from the file name.
 *
 * ```ts
 * import { type BatchTable, loadModel, runBatch } from "compy";
 *
 * const folder = await Deno.makeTempDir();
 * await Deno.writeTextFile(`${folder}/towns.csv`, "town,people\nOslo,700000\nBergen,290000\n");
 * const table: BatchTable = { prompt: "Which country is {town} in?", maxTokens: 8 };
 * await runBatch(() => loadModel(), { input: `${folder}/towns.csv`, output: `${folder}/countries.csv`, table });
 * console.log(await Deno.readTextFile(`${folder}/countries.csv`)); // town,people,answer,error …
 * await Deno.remove(folder, { recursive: true });
 * ```
 */
export interface BatchTable {
  /**
   * Prompt for each row. `{column}` stands for the row's cell, `{{` and `}}` for braces. Default for a text with one
   * prompt per line: `{text}`, the line itself.
   */
  readonly prompt?: string;
  /**
   * Column with an image for each row: its bytes (Parquet), a data URL, or a path in the batch's folder `images`. The
   * image comes before the prompt.
   */
  readonly image?: string;
  /** System prompt, the same for all rows. */
  readonly system?: string;
  /** A JSON schema that the answers match. Each property of an object schema gets a column. */
  readonly schema?: Readonly<Record<string, unknown>>;
  /** Maximum tokens of an answer; default 1,024. */
  readonly maxTokens?: number;
  /** Sampling temperature. Default 0: repeated runs give the same answer. */
  readonly temperature?: number;
  /** File format of the input. */
  readonly format?: "csv" | "parquet" | "text" | "jsonl";
  /** File format of the output. */
  readonly outputFormat?: "csv" | "parquet" | "jsonl";
  /** Separator of the cells in CSV files: one character. */
  readonly separator?: string;
  /** Prefix for the names of the new columns. */
  readonly prefix?: string;
}

const TABLE_OPTIONS: OptionTable<BatchTable> = {
  prompt: "text",
  image: "text",
  system: "text",
  schema: "object",
  maxTokens: "number",
  temperature: "number",
  format: "text",
  outputFormat: "text",
  separator: "text",
  prefix: "text",
};

/**
 * Returns how a job reads a table and judges its answers. A check needs no output format. Throws CompyError for invalid
 * table options.
 */
export async function tableOf(
  input: string,
  output: string | undefined,
  table: BatchTable,
): Promise<Required<Pick<LineChanges, "judge">> & { openInput: OpenInput }> {
  checkOptions(table, TABLE_OPTIONS);
  const [tables, { checkConstraint }, { ConstraintError }] = await Promise.all([
    import("../../tables/tables.ts"),
    import("../../engine/load/load.ts"),
    import("../../engine/mod.ts"),
  ]);
  const { schema, separator } = table;
  const format = table.format ?? tables.tableFormatOf(input);
  const outputFormat = table.outputFormat ??
    (output === undefined ? "jsonl" : tables.outputFormatOf(output));
  if (!tables.TABLE_FORMATS.some((known) => known === format)) {
    refuse("format", `must be ${tables.TABLE_FORMATS.join(", ")}, or follow from the input's name`, format);
  }
  if (!tables.OUTPUT_FORMATS.some((known) => known === outputFormat)) {
    refuse(
      "outputFormat",
      `must be ${tables.OUTPUT_FORMATS.join(", ")}, or follow from the output's name`,
      outputFormat,
    );
  }
  if (separator !== undefined && !tables.isSeparator(separator)) {
    refuse("separator", "must be one character other than a quote or a line end", separator);
  }
  const prompt = table.prompt ?? (format === "text" ? `{${tables.TEXT_COLUMN}}` : undefined);
  if (prompt === undefined) refuse("prompt", "must be the prompt for the rows", prompt);
  if (schema !== undefined) {
    await checkConstraint({ kind: "json_schema", schema }).catch((error) => {
      throw error instanceof ConstraintError ? new CompyError("invalid_constraint", error.message) : error;
    });
  }
  const form = new tables.AnswerForm(schema);
  const openInput = tables.openTableInput({
    read: { format: format!, separator: separator ?? tables.separatorOf(input) },
    question: {
      prompt: prompt!,
      system: table.system,
      image: table.image,
      fields: tables.requestFields(table),
    },
    form,
    write: {
      format: outputFormat!,
      separator: separator ?? tables.separatorOf(output ?? ""),
      prefix: table.prefix,
    },
  });
  return { openInput, judge: form.judge };
}
