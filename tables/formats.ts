/** Kinds of files that become rows. */
export const TABLE_FORMATS = ["csv", "parquet", "text", "jsonl"] as const;
export type TableFormat = typeof TABLE_FORMATS[number];

/** Kinds of files that rows and answers can be written to. */
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

/** What a file holds by its name; undefined where that is no table. */
export function tableFormatOf(path: string): TableFormat | undefined {
  return TABLES[endingOf(path)];
}

/** What a file is to be written as by its name; undefined where that does not say it. */
export function outputFormatOf(path: string): OutputFormat | undefined {
  return OUTPUTS[endingOf(path)];
}

/** Between the cells of a CSV file of this name. */
export function separatorOf(path: string): string {
  return endingOf(path) === "tsv" ? "\t" : ",";
}

/** Whether it can stand between cells. */
export function isSeparator(text: string): boolean {
  return text.length === 1 && !'"\r\n'.includes(text);
}

/** `csv` of `a/b.csv`; empty where there is none. */
function endingOf(path: string): string {
  return /\.([a-z]+)$/i.exec(path)?.[1].toLowerCase() ?? "";
}
