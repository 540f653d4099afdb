import { inputChanged } from "../jobs/check.ts";
import { BatchError, ioError } from "../jobs/errors.ts";
import { type JobInput, openFile, type OpenInput } from "../jobs/input.ts";
import type { OutputForm } from "../jobs/output_form.ts";
import type { RawLine } from "../jobs/lines.ts";
import { readFully, type Storage, type StorageFile } from "../jobs/journal/storage.ts";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import type { Cell } from "./cells.ts";
import { hasMark } from "./csv.ts";
import { askedOf, type Question, type TableJob } from "./question.ts";
import { answeredRows, keptRows, resultColumns } from "./results.ts";
import { renderRows } from "./render.ts";
import type { Row, Table } from "./table.ts";
import { openTable } from "./open.ts";
import { parseTemplate, type Template, unknownColumn } from "./template.ts";

const URL = "/v1/chat/completions";
const encoder = new TextEncoder();

/** Opens tables as a job's input. Each row becomes a line, and the output has its answer in the same row. */
export function openTableInput(job: TableJob): OpenInput {
  return async (storage, path) => {
    const file = await openFile(storage, path);
    try {
      return await TableInput.open(file, path, job);
    } catch (error) {
      file.close();
      throw error;
    }
  };
}

class TableInput implements JobInput {
  readonly output: OutputForm;
  readonly asked;
  /** Hash of the input file when it was checked. */
  private checked: string | undefined;

  private constructor(
    private readonly file: StorageFile,
    private readonly name: string,
    readonly size: number,
    private readonly table: Table,
    private readonly template: Template,
    private readonly job: TableJob,
    mark: boolean,
  ) {
    this.asked = askedOf(job);
    const columns = resultColumns(table.columns, job.form, job.write.prefix);
    for (const { from, name } of columns) if (from !== name) job.onRename?.(from, name);
    const write = { ...job.write, mark };
    this.output = {
      render: (records) =>
        this.unchanged(renderRows(file, table, columns, answeredRows(records, job.form), write)),
      answers: (storage: Storage, output: string) => keptRows(storage, output, columns, write),
    };
  }

  static async open(file: StorageFile, name: string, job: TableJob): Promise<TableInput> {
    const table = await openTable(file, name, job.read);
    const template = templateOf(job.question, table, name);
    const mark = job.read.format === "csv" && await hasMark(file);
    return new TableInput(file, name, await file.size(), table, template, job, mark);
  }

  async *lines(maxLineBytes: number): AsyncGenerator<RawLine> {
    let index = 0;
    const { image } = this.job.question;
    for await (
      const row of this.table.rows([...this.template.columns, ...(image === undefined ? [] : [image])])
    ) {
      yield lineOf(row, index, this.template, this.job, maxLineBytes);
      index += 1;
    }
  }

  async digest(): Promise<string> {
    return this.checked = await sha256(this.file, this.name);
  }

  /** Yields the output's bytes, and throws at the end if the input file has changed since it was checked. */
  private async *unchanged(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    try {
      yield* bytes;
    } catch (error) {
      throw ioError(`write the rows of "${this.name}" and their answers`, error);
    }
    if (await sha256(this.file, this.name) !== this.checked) throw inputChanged(this.name, 1);
  }

  close(): void {
    this.file.close();
  }
}

/** Returns the parsed prompt. Throws BatchError if the question does not fit the table. */
function templateOf({ prompt, image }: Question, { columns }: Table, name: string): Template {
  if (image !== undefined && !columns.includes(image)) {
    const problem = ` for "${name}": ${unknownColumn(image, columns)}`;
    throw new BatchError("input_unreadable", ["Invalid ", { image: undefined }, problem], false);
  }
  try {
    return parseTemplate(prompt, columns);
  } catch (error) {
    const problem = ` for "${name}": ${(error as Error).message}`;
    throw new BatchError("input_unreadable", ["Invalid ", { prompt: undefined }, problem], false);
  }
}

/** Returns a row's line. Parts that are equal in all rows come first, so that their prefix is cached. */
function lineOf(row: Row, index: number, template: Template, job: TableJob, maxLineBytes: number): RawLine {
  const customId = `row-${index + 1}`;
  const { number, place } = row;
  const { question: { system, image, fields }, form: { schema } } = job;
  const prompt = row.fault === undefined ? template.render(row.cells) : undefined;
  const url = image === undefined || row.fault !== undefined ? "" : imageUrl(row.cells.at(-1)!);
  if (prompt === undefined || prompt.trim() === "" || url === undefined) {
    const fault = row.fault !== undefined
      ? { customId, code: "invalid_row", message: row.fault }
      : url === undefined
      ? { customId, code: "empty_image", message: `"${image}" has no image` }
      : { customId, code: "empty_prompt", message: emptyPrompt(template) };
    const bytes = encoder.encode(fault.message);
    return { index, number, place, bytes, length: bytes.length, fault };
  }
  const content = image === undefined
    ? prompt
    : [{ type: "image_url", image_url: { url } }, { type: "text", text: prompt }];
  const messages = [
    ...(system === undefined ? [] : [{ role: "system", content: system }]),
    { role: "user", content },
  ];
  const form = schema && { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  const body = { messages, ...fields, ...(form && { response_format: form }) };
  const bytes = encoder.encode(JSON.stringify({ custom_id: customId, method: "POST", url: URL, body }));
  const isTooLong = bytes.length > maxLineBytes;
  return { index, number, place, bytes: isTooLong ? undefined : bytes, length: bytes.length };
}

/**
 * Returns a cell as the URL of an image; undefined without an image. The cell has bytes, a path or a data URL, or is a
 * structure with `bytes` or `path`, as data sets on Hugging Face have.
 */
function imageUrl(cell: Cell): string | undefined {
  if (cell instanceof Uint8Array) return `data:image/png;base64,${Buffer.from(cell).toString("base64")}`;
  if (typeof cell === "string") {
    if (cell.trim() === "") return undefined;
    return /^(?:data|file|https?):/i.test(cell) ? cell : `file:${cell}`;
  }
  if (typeof cell !== "object" || cell === null || Array.isArray(cell)) return undefined;
  const { bytes, path } = cell as { readonly bytes?: Cell; readonly path?: Cell };
  return imageUrl(bytes ?? path ?? null);
}

function emptyPrompt({ columns }: Template): string {
  if (columns.length === 0) return "the prompt is empty";
  const named = columns.map((column) => `"${column}"`).join(", ");
  return `the prompt would be empty: ${named} ${columns.length === 1 ? "is" : "are all"} empty`;
}

async function sha256(file: StorageFile, name: string): Promise<string> {
  const hash = createHash("sha256");
  const chunk = new Uint8Array(1024 * 1024);
  for (let offset = 0;;) {
    const count = await readFully(file, chunk, offset).catch((error) => {
      throw ioError(`read "${name}"`, error);
    });
    hash.update(chunk.subarray(0, count));
    offset += count;
    if (count < chunk.length) return hash.digest("hex");
  }
}
