import { assertEquals, assertRejects } from "@std/assert";
import { BatchError } from "../jobs/errors.ts";
import { csvLine } from "./csv.ts";
import { rowsOf } from "./testing.ts";

const CSV = { format: "csv" } as const;
const cellsOf = async (text: string, separator?: string) =>
  (await rowsOf(text, { ...CSV, separator })).map(({ cells }) => cells);

Deno.test("csv: reads byte order mark, CRLF, quotes, lines inside cells, blank lines and a missing final line end", async () => {
  const text = '\ufeffid,text\r\n1,"a ""b"", c"\r\n\r\n2,"two\r\nlines\nmore"\r\n3,';
  const rows = await rowsOf(text, CSV);
  assertEquals(rows.map(({ number, place, cells }) => [number, place, ...cells]), [
    [2, "Line 2 (row 1)", "1", 'a "b", c'],
    [4, "Line 4 (row 2)", "2", "two\r\nlines\nmore"],
    [7, "Line 7 (row 3)", "3", null],
  ]);
});

Deno.test("csv: reads other separators", async () => {
  assertEquals(await cellsOf('a;b\n"1;2";3,5\n', ";"), [["1;2", "3,5"]]);
  assertEquals(await cellsOf("a\tb\n1\t2 3\n", "\t"), [["1", "2 3"]]);
});

Deno.test("csv: reports a broken row and its line number, without losing other rows", async () => {
  const rows = await rowsOf('a,b\n1,2\n3,4,5\n6,x"y\n7,8\n"9"z,1\n10,"open\n11,12\n', CSV);
  assertEquals(rows.map(({ number, cells, fault }) => [number, cells[0], fault?.replace(/ .*/, "")]), [
    [2, "1", undefined],
    [3, null, "must"],
    [4, null, "not"],
    [5, "7", undefined],
    [6, null, "not"],
    [7, null, "not"],
    [8, "11", undefined],
  ]);
  assertEquals(rows[1].fault, "must have 2 cells, as the first line has (got 3)");
});

Deno.test("csv: reads rows across chunk boundaries", async () => {
  const long = "x".repeat(100_000);
  const text = `a,b\n${Array.from({ length: 30 }, (_, n) => `${n},"${long}é\n"\n`).join("")}`;
  const rows = await cellsOf(text);
  assertEquals(rows.length, 30);
  assertEquals(rows.every(([, b]) => b === `${long}é\n`), true);
});

Deno.test("csv: explains why a file is not a table", async () => {
  const refused = async (content: string | Uint8Array, message: string) => {
    await assertRejects(() => rowsOf(content, CSV), BatchError, `Cannot read "in" as CSV: ${message}`);
  };
  await refused("", "it must have a first line with the names of its columns");
  await refused("a,b,a\n1,2,3\n", 'columns 1 and 3 are both called "a"; rename one');
  await refused(
    new Uint8Array([97, 10, 0xe9, 10]),
    "it has bytes that are not UTF-8 after line 0; save it as UTF-8",
  );
});

Deno.test("csv: names an unnamed column by its position", async () => {
  assertEquals(await cellsOf(",text\n0,a\n"), [["0", "a"]]);
});

Deno.test("csv: reads back exactly what it writes", async () => {
  const cells = ['a "b"', "c,d", " e ", "two\r\nlines", "=1+1", "plain", "é;\t"];
  const text = csvLine(cells.map((_, n) => `c${n}`), ",") + csvLine(cells, ",") +
    csvLine(cells.map(() => null), ",");
  assertEquals(await cellsOf(text), [cells, cells.map(() => null)]);
  assertEquals(csvLine([null], ","), '""\n');
  assertEquals(await cellsOf(`a\n${csvLine([null], ",")}`), [[null]]);
});
