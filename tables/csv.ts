import { parse } from "@std/csv/parse.js";
import { BatchError, ioError } from "../jobs/errors.ts";
import { readFully, type StorageFile } from "../jobs/journal/storage.ts";
import { type Cell, cellText } from "./cells.ts";
import { MAX_ROW_BYTES, type Row, type Table } from "./table.ts";

const CHUNK_BYTES = 256 * 1024;
const NOT_CSV =
  'not valid CSV: a cell with separators, quotes or line ends must be in quotes ("), with each quote in it doubled';

/** A CSV record, which may span several lines. */
interface CsvRecord {
  /** Line number of the record's first line, from 1. */
  readonly line: number;
  readonly cells?: readonly string[];
  readonly fault?: string;
}

/**
 * Opens a CSV file whose first line has the column names. UTF-8 with or without a byte order mark; lines end
 * in LF or CRLF.
 */
export async function openCsv(file: StorageFile, name: string, separator = ","): Promise<Table> {
  const { value: header } = await readRecords(file, name, separator).next();
  if (header === undefined) throw unreadable(name, "it must have a first line with the names of its columns");
  if (header.cells === undefined) throw unreadable(name, `line ${header.line} is ${header.fault}`);
  const columns = namesOf(header.cells, name);
  return {
    columns,
    async *rows(wanted = columns) {
      const places = wanted.map((column) => columns.indexOf(column));
      const records = readRecords(file, name, separator);
      await records.next(); // skips the header
      let row = 0;
      for await (const { line, cells, fault } of records) {
        row += 1;
        const place = `Line ${line} (row ${row})`;
        const wrong = fault ?? wrongLength(cells!, columns);
        const found = wrong === undefined ? places.map((i) => cells![i] || null) : places.map(() => null);
        yield { number: line, place, cells: found, fault: wrong } satisfies Row;
      }
    },
  };
}

/**
 * Returns the column names; an unnamed column is named by its position. Throws BatchError for duplicate
 * names.
 */
function namesOf(header: readonly string[], name: string): string[] {
  const columns = header.map((cell, i) => cell.trim() || `column_${i + 1}`);
  const twice = columns.findIndex((column, i) => columns.indexOf(column) !== i);
  if (twice < 0) return columns;
  const first = columns.indexOf(columns[twice]) + 1;
  throw unreadable(name, `columns ${first} and ${twice + 1} are both called "${columns[twice]}"; rename one`);
}

function wrongLength(cells: readonly string[], columns: readonly string[]): string | undefined {
  if (cells.length === columns.length) return undefined;
  return `must have ${columns.length} cells, as the first line has (got ${cells.length})`;
}

/** Yields a file's records. After a broken record, the next one starts at the line after its first. */
async function* readRecords(file: StorageFile, name: string, separator: string): AsyncGenerator<CsvRecord> {
  const open = new OpenRecord(separator);
  for await (const lines of readTextLines(file, name)) {
    for (const line of lines) {
      for (const record of open.add(line)) yield record;
    }
  }
  for (const record of open.end()) yield record;
}

/** Collects the lines of a record: while a quote is open, the next line belongs to the record. */
class OpenRecord {
  private lines: string[] = [];
  private first = 1;
  private length = 0;
  private quoted = false;

  constructor(private readonly separator: string) {}

  /** Returns the records that end with this line. */
  add(line: string): CsvRecord[] {
    this.lines.push(line);
    this.length += line.length + 1;
    if (line.includes('"') && quotes(line) % 2 === 1) this.quoted = !this.quoted;
    if (this.quoted && this.length <= MAX_ROW_BYTES) return [];
    return this.take();
  }

  end(): CsvRecord[] {
    let records: CsvRecord[] = [];
    while (this.lines.length > 0) records = records.concat(this.take());
    return records;
  }

  private take(): CsvRecord[] {
    const { lines, first, length } = this;
    const isWhole = !this.quoted;
    this.lines = [];
    this.length = 0;
    this.quoted = false;
    const cells = isWhole && length <= MAX_ROW_BYTES ? parseRecord(lines, this.separator) : undefined;
    if (cells !== undefined || lines.length === 1) {
      this.first = first + lines.length;
      if (cells === undefined) return [{ line: first, fault: faultOf(length, isWhole) }];
      return cells.length === 0 ? [] : [{ line: first, cells }];
    }
    // The record's first line has an extra quote, so the lines after it are parsed as separate records.
    this.first = first + 1;
    return [
      { line: first, fault: faultOf(length, isWhole) },
      ...lines.slice(1).flatMap((line) => this.add(line)),
    ];
  }
}

function faultOf(length: number, isWhole: boolean): string {
  if (!isWhole) return `${NOT_CSV}. A quote that is opened here is not closed`;
  return length > MAX_ROW_BYTES ? `must have at most ${MAX_ROW_BYTES} characters (got ${length})` : NOT_CSV;
}

function quotes(line: string): number {
  let count = 0;
  for (let at = line.indexOf('"'); at >= 0; at = line.indexOf('"', at + 1)) count += 1;
  return count;
}

/** Returns the cells of a record: empty for a blank line, undefined for an invalid record. */
function parseRecord(lines: readonly string[], separator: string): readonly string[] | undefined {
  const text = lines.join("\n").replace(/\r$/, "");
  if (text.trim() === "" && !text.includes(separator)) return [];
  if (!text.includes('"')) return text.split(separator);
  const standIn = text.includes("\r") ? unusedCharacter(text) : "";
  try {
    // The parser would change CRLF inside cells into LF.
    const records = parse(standIn === "" ? text : text.replaceAll("\r", standIn), { separator });
    if (records.length !== 1) return undefined;
    return standIn === "" ? records[0] : records[0].map((cell: string) => cell.replaceAll(standIn, "\r"));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Returns a private-use character that the text does not contain. */
function unusedCharacter(text: string): string {
  let code = 0xe000;
  while (text.includes(String.fromCharCode(code))) code += 1;
  return String.fromCharCode(code);
}

/** Yields a text's lines without LF, in batches. Throws BatchError if it is not UTF-8. */
async function* readTextLines(file: StorageFile, name: string): AsyncGenerator<string[]> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const chunk = new Uint8Array(CHUNK_BYTES);
  let rest = "";
  let number = 0;
  for (let offset = 0;;) {
    const count = await readFully(file, chunk, offset).catch((error) => {
      throw ioError(`read "${name}"`, error);
    });
    const isEnd = count < chunk.length;
    offset += count;
    let text: string;
    try {
      text = decoder.decode(chunk.subarray(0, count), { stream: !isEnd });
    } catch {
      throw unreadable(name, `it has bytes that are not UTF-8 after line ${number}; save it as UTF-8`);
    }
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    number += lines.length;
    if (rest.length > 2 * MAX_ROW_BYTES) throw unreadable(name, `line ${number + 1} is too long`);
    if (isEnd && rest !== "") lines.push(rest);
    yield lines;
    if (isEnd) return;
  }
}

/** Returns whether the file begins with a byte order mark, which some programs need to recognise UTF-8. */
export async function hasMark(file: StorageFile): Promise<boolean> {
  const bytes = new Uint8Array(3);
  return await readFully(file, bytes, 0) === 3 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
}

/** Returns a line of a CSV file with its LF. */
export function csvLine(cells: readonly Cell[], separator: string): string {
  const line = cells.map((cell) => {
    const text = cellText(cell);
    const isPlain = !/["\r\n]|^\s|\s$/.test(text) && !text.includes(separator);
    return isPlain ? text : `"${text.replaceAll('"', '""')}"`;
  }).join(separator);
  // Readers would skip an empty line, so an empty cell is quoted.
  return `${line === "" ? '""' : line}\n`;
}

function unreadable(name: string, why: string): BatchError {
  return new BatchError("input_unreadable", `Cannot read "${name}" as CSV: ${why}`, false);
}
