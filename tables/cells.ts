import { Buffer } from "node:buffer";

/** A cell of a table; null if it is missing. Dates and times are ISO 8601 texts. */
export type Cell =
  | string
  | number
  | bigint
  | boolean
  | null
  | Uint8Array
  | readonly Cell[]
  | { readonly [field: string]: Cell };

/**
 * Returns a cell as text for a prompt or CSV: missing values are empty, nested ones JSON, and bytes that are
 * not UTF-8 base64.
 */
export function cellText(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell === "string") return cell;
  if (typeof cell !== "object") return String(cell);
  return cell instanceof Uint8Array ? bytesText(cell) : cellJson(cell);
}

/** Returns a cell as JSON. 64-bit integers keep all digits. */
export function cellJson(cell: Cell): string {
  return JSON.stringify(cell, (_, value) => {
    if (typeof value === "bigint") return JSON.rawJSON(String(value));
    return value instanceof Uint8Array ? bytesText(value) : value;
  });
}

/** Returns whether the cell is null or only white space. */
export function isMissing(cell: Cell): boolean {
  return cell === null || typeof cell === "string" && cell.trim() === "";
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Returns bytes as text if they are UTF-8, because old Parquet writers do not mark texts. */
function bytesText(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return Buffer.from(bytes).toString("base64");
  }
}

declare global {
  interface JSON {
    /** Returns a value that `stringify` writes unchanged. */
    rawJSON(text: string): unknown;
  }
}
