import { assertEquals, assertRejects } from "@std/assert";
import type { RowGroup } from "hyparquet";
import { BatchError } from "../jobs/errors.ts";
import { openFile } from "../jobs/input.ts";
import { cellJson, cellText } from "./cells.ts";
import { renderParquetBeside } from "./parquet_beside.ts";
import { readPages } from "./parquet_pages.ts";
import { renderParquet } from "./parquet_write.ts";
import { openTable } from "./open.ts";
import { joined, rowsOf, storageWith } from "./testing.ts";
import { decodeStruct, encodeStruct, ThriftStruct } from "./thrift.ts";

const PARQUET = { format: "parquet" } as const;
/** Parquet file with many types, written by fixtures/many_types.py. */
const MANY_TYPES = await Deno.readFile(new URL("fixtures/many_types.parquet", import.meta.url));

Deno.test("parquet: reads values of many types as texts and as JSON", async () => {
  const rows = await rowsOf(MANY_TYPES, PARQUET);
  assertEquals(rows.map(({ number, place }) => [number, place]), [[1, "Row 1"], [2, "Row 2"], [3, "Row 3"]]);
  assertEquals(rows.map(({ cells }) => cells.map(cellText)), [
    [
      "1",
      "one",
      "0.1",
      "12.30",
      "2024-05-01",
      "2024-05-01T12:00:00.123456Z",
      "2024-05-01T12:00:00.123456",
      "01:02:03.004",
      '["a","b"]',
      '{"x":1,"y":null}',
      "true",
      "u",
      "/wA=",
      "9223372036854775809",
    ],
    [
      "2",
      "",
      "4.5",
      "-0.05",
      "1969-12-31",
      "2024-05-01T12:00:00.123456Z",
      "",
      "",
      "[]",
      '{"x":null,"y":"z"}',
      "false",
      "v",
      "text",
      "0",
    ],
    ["3", 'with "quotes"\nand lines', ...Array(9).fill(""), "u", "", ""],
  ]);
  assertEquals(cellJson(rows[0].cells[13]), "9223372036854775809");
});

Deno.test("parquet: reads back columns of several types in several row groups", async () => {
  const columns = [
    { name: "text", kind: "text" },
    { name: "list", kind: "json" },
    { name: "count", kind: "integer" },
    { name: "part", kind: "number" },
    { name: "flag", kind: "boolean" },
  ] as const;
  const rows = Array.from(
    { length: 25_000 },
    (_, n) => n % 5 === 4 ? [null, null, null, null, null] : [`text ${n}`, [n, "x"], n, n / 3, n % 2 === 0],
  );
  const bytes = await joined(renderParquet(
    columns,
    (async function* () {
      yield* rows;
    })(),
  ));
  const found = await rowsOf(bytes, PARQUET);
  assertEquals(
    found.map(({ cells }) => cells),
    rows.map(([text, list, count, ...rest]) => [
      text,
      list === null ? null : JSON.stringify(list),
      count === null ? null : BigInt(count as number),
      ...rest,
    ]) as typeof found[0]["cells"][],
  );
});

Deno.test("parquet: adds columns without changing values, types and statistics of existing ones", async () => {
  const file = await openFile(storageWith(MANY_TYPES), "in");
  const columns = [{ name: "answer", kind: "text" }, { name: "error", kind: "text" }] as const;
  const results = (async function* () {
    yield* [["a", null], [null, "no"], ["c", null]];
  })();
  const bytes = await joined(renderParquetBeside(file, columns, results));
  const before = await rowsOf(MANY_TYPES, PARQUET);
  const after = await rowsOf(bytes, PARQUET);
  assertEquals(after.map(({ cells }) => cells.slice(0, -2)), before.map(({ cells }) => cells));
  assertEquals(after.map(({ cells }) => cells.slice(-2)), [["a", null], [null, "no"], ["c", null]]);
  const table = await openTable(await openFile(storageWith(bytes), "in"), "in", PARQUET);
  assertEquals(table.columns.slice(-3), ["big", "answer", "error"]);

  const [old, now] = [footer(MANY_TYPES), footer(bytes)];
  const types = (struct: typeof old) => struct.structs(2).slice(1).map((element) => encodeStruct(element));
  assertEquals(types(now).slice(0, types(old).length), types(old));
  const bounds = (struct: typeof old) =>
    struct.structs(4).flatMap((group) =>
      group.structs(1).slice(0, 12).map((chunk) => chunk.struct(3)!.struct(12)).map((s) =>
        s && encodeStruct(s)
      )
    );
  assertEquals(bounds(now), bounds(old));
});

Deno.test("parquet: copies only the row groups with answers, and marks their other rows as not run", async () => {
  const rows = Array.from({ length: 25_000 }, (_, n) => [n]);
  const input = await joined(renderParquet([{ name: "n", kind: "integer" }], given(rows)));
  const columns = [{ name: "answer", kind: "text" }, { name: "error", kind: "text" }] as const;
  const answers = Array.from({ length: 10_002 }, (_, n) => [`a${n}`, null]);
  const file = await openFile(storageWith(input), "in");
  const bytes = await joined(renderParquetBeside(file, columns, given(answers)));
  assertEquals([footer(bytes).structs(4).length, footer(bytes).integer(3)], [2, 20_000n]);
  const found = await rowsOf(bytes, PARQUET);
  assertEquals(found.length, 20_000);
  const error = "Not run yet, because the run was limited to the first rows";
  assertEquals(found.slice(10_001, 10_004).map(({ cells }) => cells), [
    [10_001n, "a10001", null],
    [10_002n, null, error],
    [10_003n, null, error],
  ]);
});

async function* given<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

function footer(file: Uint8Array) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  return decodeStruct(
    file.subarray(file.length - 8 - view.getUint32(file.length - 8, true), file.length - 8),
  );
}

Deno.test("parquet: writes metadata back exactly as it was read", () => {
  const view = new DataView(MANY_TYPES.buffer);
  const length = view.getUint32(MANY_TYPES.length - 8, true);
  const bytes = MANY_TYPES.subarray(MANY_TYPES.length - 8 - length, MANY_TYPES.length - 8);
  assertEquals(encodeStruct(decodeStruct(bytes)), bytes);
});

Deno.test("parquet: refuses a list that claims too many values before reading it", async () => {
  const values = 2n ** 31n - 1n;
  const integer = (id: number, value: bigint) => ({ id, type: 5, value });
  const data = { id: 5, type: 12, value: new ThriftStruct([integer(1, values)]) };
  const page = encodeStruct(new ThriftStruct([integer(1, 0n), integer(2, 0n), integer(3, 0n), data]));
  const chunk = {
    path_in_schema: ["tags", "list", "element"],
    num_values: values,
    data_page_offset: 0n,
    total_compressed_size: BigInt(page.length),
  };
  const group = { columns: [{ meta_data: chunk }], num_rows: 1n } as unknown as RowGroup;
  const file = { byteLength: page.length, slice: () => Promise.resolve(new Uint8Array(page).buffer) };
  await assertRejects(() => readPages(file, group, ["tags"]), Error, "at most 50000000 values");
  await readPages(file, group, []);
});

Deno.test("parquet: refuses decimals with an excessive scale or of a wrong type", async () => {
  const bytes = await joined(renderParquet(
    [{ name: "price", kind: "number" }],
    (async function* () {
      yield [0.5];
    })(),
  ));
  const asDecimals = (scale: bigint) => {
    const description = footer(bytes);
    const [root, price] = description.structs(2);
    const [converted, scaled] = [{ id: 6, type: 5, value: 5n }, { id: 7, type: 5, value: scale }];
    const fields = [...[...price].filter(({ id }) => id < 6), converted, scaled];
    description.replaceItems(2, [root, new ThriftStruct(fields)]);
    const end = encodeStruct(description);
    const length = new Uint8Array(Uint32Array.of(end.length).buffer);
    return new Uint8Array([...bytes, ...end, ...length, ...new TextEncoder().encode("PAR1")]);
  };
  for (const scale of [2n, -5_000n, 1_000_000n]) {
    await assertRejects(() => rowsOf(asDecimals(scale), PARQUET), BatchError, 'Cannot read "in" as Parquet');
  }
});

Deno.test("parquet: refuses damaged files, wherever they are cut or changed", async () => {
  const refused = (bytes: Uint8Array) =>
    assertRejects(() => rowsOf(bytes, PARQUET), BatchError, 'Cannot read "in"');
  await refused(new Uint8Array(0));
  await refused(new TextEncoder().encode("PAR1 is not enough"));
  for (const length of [10, 1000, MANY_TYPES.length - 1]) await refused(MANY_TYPES.slice(0, length));
  // After any changed byte, the file must be read or refused with BatchError. Byte 287 makes a page claim very many
  // values.
  for (let at = 287 % 41; at < MANY_TYPES.length; at += 41) {
    const bytes = MANY_TYPES.slice();
    bytes[at] ^= 0x55;
    await rowsOf(bytes, PARQUET).catch((error) => {
      if (!(error instanceof BatchError)) throw new Error(`byte ${at}: ${error.stack}`, { cause: error });
    });
  }
});
