import { type Cell, cellText, isMissing } from "./cells.ts";

/** A text with column names in braces; `{{` and `}}` are literal braces. */
export interface Template {
  /** Columns that the template names, each once. */
  readonly columns: readonly string[];
  /** Returns the text for a row with these cells, in the order of `columns`; undefined if all of them are missing. */
  render(cells: readonly Cell[]): string | undefined;
}

/** Parses a template. Throws Error for an unmatched brace and for an unknown column. */
export function parseTemplate(text: string, known: readonly string[]): Template {
  const parts: string[] = [];
  const columns: string[] = [];
  const places: number[] = [];
  let fixed = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char !== "{" && char !== "}") fixed += char;
    else if (text[at + 1] === char) fixed += text[at++];
    else if (char === "}") {
      throw new Error(`the } at character ${at + 1} has no opening brace; write }} for a brace`);
    } else {
      const end = text.indexOf("}", at);
      if (end < 0) throw new Error(`the { at character ${at + 1} is not closed; write {{ for a brace`);
      const name = text.slice(at + 1, end);
      if (!known.includes(name)) throw new Error(unknownColumn(name, known));
      if (!columns.includes(name)) columns.push(name);
      places.push(columns.indexOf(name));
      parts.push(fixed);
      fixed = "";
      at = end;
    }
  }
  return {
    columns,
    render: (cells) => {
      if (columns.length > 0 && cells.every(isMissing)) return undefined;
      return parts.map((part, i) => part + cellText(cells[places[i]])).join("") + fixed;
    },
  };
}

const MAX_SHOWN = 20;

/** Returns the message for an unknown column, with the names of the known columns. */
export function unknownColumn(name: string, known: readonly string[]): string {
  const shown = known.slice(0, MAX_SHOWN).map((column) => `"${column}"`).join(", ");
  const more = known.length > MAX_SHOWN ? `, and ${known.length - MAX_SHOWN} more` : "";
  return `there is no column "${name}"; the columns are ${shown}${more}. Write {{ for a brace`;
}
