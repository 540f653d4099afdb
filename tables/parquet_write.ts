import type { SchemaElement } from "hyparquet";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import type { AnswerKind } from "./answers.ts";
import { type Cell, cellText } from "./cells.ts";

/** Maximum rows and bytes of a row group, if the input has no row groups. */
const GROUP_ROWS = 10_000;
const GROUP_CHARACTERS = 32 * 1024 * 1024;

export interface WrittenColumn {
  readonly name: string;
  readonly kind: AnswerKind;
}

const TYPES: Readonly<Record<AnswerKind, Partial<SchemaElement>>> = {
  text: { type: "BYTE_ARRAY", converted_type: "UTF8", logical_type: { type: "STRING" } },
  json: { type: "BYTE_ARRAY", converted_type: "UTF8", logical_type: { type: "STRING" } },
  integer: { type: "INT64" },
  number: { type: "DOUBLE" },
  boolean: { type: "BOOLEAN" },
};

/** Yields a Parquet file with the given columns. */
export async function* renderParquet(
  columns: readonly WrittenColumn[],
  rows: AsyncIterable<readonly Cell[]>,
): AsyncGenerator<Uint8Array> {
  const parts = new ParquetParts(columns);
  let group: (readonly Cell[])[] = [];
  let characters = 0;
  for await (const cells of rows) {
    group.push(cells);
    for (const cell of cells) if (typeof cell === "string") characters += cell.length;
    if (group.length < GROUP_ROWS && characters < GROUP_CHARACTERS) continue;
    yield parts.group(group);
    group = [];
    characters = 0;
  }
  if (group.length > 0) yield parts.group(group);
  yield parts.end();
}

/** Builds a Parquet file in parts. */
export class ParquetParts {
  private readonly writer = new ByteWriter();
  private readonly file: ParquetWriter;

  constructor(private readonly columns: readonly WrittenColumn[]) {
    const root = { name: "schema", num_children: columns.length };
    const schema = [root, ...columns.map(elementOf)];
    this.file = new ParquetWriter({ writer: this.writer, schema, createdBy: "compy" });
  }

  /** Bytes written so far. */
  get offset(): number {
    return this.writer.offset;
  }

  /** Returns the pending bytes, followed by part of another file. */
  copied(bytes: Uint8Array): Uint8Array {
    this.writer.appendBytes(bytes);
    return this.taken();
  }

  group(rows: readonly (readonly Cell[])[]): Uint8Array {
    const columnData = this.columns.map(({ name, kind }, i) => ({
      name,
      data: rows.map((cells) => stored(cells[i], kind)),
      offsetIndex: false,
    }));
    this.file.write({ columnData, rowGroupSize: rows.length });
    return this.taken();
  }

  /** Returns the file's metadata, its length and the end mark. */
  end(): Uint8Array {
    this.file.finish();
    return this.taken();
  }

  private taken(): Uint8Array {
    const bytes = this.writer.getBytes().slice();
    this.writer.index = 0;
    return bytes;
  }
}

function elementOf({ name, kind }: WrittenColumn): SchemaElement {
  return { name, repetition_type: "OPTIONAL", ...TYPES[kind] };
}

/** Returns a cell in the writer's form. */
function stored(cell: Cell, kind: AnswerKind): unknown {
  if (cell === null) return null;
  if (kind === "text" || kind === "json") return cellText(cell);
  if (kind === "boolean") return cell === true;
  return kind === "number" ? Number(cell) : BigInt(cell as number | bigint);
}
