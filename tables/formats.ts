/** File formats that can be read as rows. */
export const TABLE_FORMATS = ["csv", "parquet", "text", "jsonl"] as const;
export type TableFormat = typeof TABLE_FORMATS[number];

/** File formats for rows with answers. */
export const OUTPUT_FORMATS = ["csv", "parquet", "jsonl"] as const;
export type OutputFormat = typeof OUTPUT_FORMATS[number];

const TABLES: Readonly<Record<string, TableFormat>> = {
  csv: "csv",
  tsv: "csv",
  txt: "text",
  parquet: "parquet",
  jsonl: "jsonl",
};
const OUTPUTS: Readonly<Record<string, OutputFormat>> = {
  csv: "csv",
  tsv: "csv",
  parquet: "parquet",
  jsonl: "jsonl",
};

/** Returns a file's table format by its name; undefined if it is not a table. */
export function tableFormatOf(path: string): TableFormat | undefined {
  return TABLES[endingOf(path)];
}

/** Returns a file's output format by its name; undefined if the name does not show it. */
export function outputFormatOf(path: string): OutputFormat | undefined {
  return OUTPUTS[endingOf(path)];
}

/** Returns the separator of a CSV file by its name. */
export function separatorOf(path: string): string {
  return endingOf(path) === "tsv" ? "\t" : ",";
}

/** Whether the text is a valid separator. */
export function isSeparator(text: string): boolean {
  return text.length === 1 && !'"\r\n'.includes(text);
}

/** Returns the ending of a path, `csv` for `a/b.csv`; empty if it has none. */
function endingOf(path: string): string {
  return /\.([a-z]+)$/i.exec(path)?.[1].toLowerCase() ?? "";
}

/** Options for writing rows with their answers. */
export interface WriteOptions {
  readonly format: OutputFormat;
  /** Separator of the cells in a CSV file. */
  readonly separator?: string;
  /** Prefix of the new columns' names. */
  readonly prefix?: string;
}
