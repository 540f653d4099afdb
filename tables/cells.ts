/** A value of a table; null where there is none. Dates and times are texts, as ISO 8601 has them. */
export type Cell =
  | string
  | number
  | bigint
  | boolean
  | null
  | Uint8Array
  | readonly Cell[]
  | { readonly [field: string]: Cell };

/** As a prompt and a CSV file have it: what is missing is nothing, what is nested is JSON, bytes that are no text are base64. */
export function cellText(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell === "string") return cell;
  if (typeof cell !== "object") return String(cell);
  return cell instanceof Uint8Array ? bytesText(cell) : cellJson(cell);
}

/** As JSON has it; an integer of 64 bits keeps all its digits. */
export function cellJson(cell: Cell): string {
  return JSON.stringify(cell, (_, value) => {
    if (typeof value === "bigint") return JSON.rawJSON(String(value));
    return value instanceof Uint8Array ? bytesText(value) : value;
  });
}

/** Whether nothing is there to be read: no value, or white space. */
export function isMissing(cell: Cell): boolean {
  return cell === null || typeof cell === "string" && cell.trim() === "";
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Old writers of Parquet do not say that a text is one. */
function bytesText(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return bytes.toBase64();
  }
}

declare global {
  interface JSON {
    /** A value that `stringify` writes as it is. */
    rawJSON(text: string): unknown;
  }
  interface Uint8Array {
    toBase64(): string;
  }
}
