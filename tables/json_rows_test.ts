import { assertEquals, assertRejects } from "@std/assert";
import { parquetReadObjects } from "hyparquet";
import { BatchError } from "../jobs/errors.ts";
import { runOn } from "../jobs/testing.ts";
import { rowsOf, storageWith, tableJob } from "./testing.ts";

const read = { format: "jsonl" } as const;

Deno.test("JSONL rows: columns are the names of all rows, and a name that a row lacks is null", async () => {
  const rows = await rowsOf('\ufeff{"a":1,"b":"x"}\r\n\n{"b":null,"c":[1,{"d":2}]}', read);
  assertEquals(rows.map(({ number, cells }) => [number, cells]), [
    [1, [1, "x", null]],
    [3, [null, null, [1, { d: 2 }]]],
  ]);
});

Deno.test("jsonl rows: 64-bit integers keep their digits", async () => {
  const [{ cells }] = await rowsOf(
    '{"a":9223372036854775807,"b":-1234567890123456789012,"c":0.12345678901234567}',
    read,
  );
  assertEquals(cells, [9223372036854775807n, -1.2345678901234568e21, 0.12345678901234566]);
});

Deno.test("jsonl rows: a line that is not a row is an error of that line only", async () => {
  const deep = `{"a":${"[".repeat(70)}${"]".repeat(70)}}`;
  const faults = (await rowsOf(`{"a":1}\n[1]\n{\nnull\n${deep}\n"\udc00"\n{"__proto__":3}`, read)).map((
    { fault },
  ) => fault?.slice(0, 24));
  assertEquals(faults, [
    undefined,
    "must be a JSON object, w",
    "not valid JSON: Expected",
    "must be a JSON object, w",
    "must be nested at most 6",
    "must be a JSON object, w",
    undefined,
  ]);
  for (const text of ["", "[]\n", "{}\n"]) {
    await assertRejects(() => rowsOf(text, read), BatchError, "no line is a JSON object with a column");
  }
  const many = Array.from(
    { length: 101 },
    (_, n) =>
      JSON.stringify(Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`k${100 * n + i}`, 1]))),
  );
  await assertRejects(() => rowsOf(many.join("\n"), read), BatchError, "more than 10000 names");
});

Deno.test("jsonl rows: become Parquet with the types of their values", async () => {
  const input = [
    { i: 1, x: 1, b: true, t: "a", mixed: 1, list: [1], big: JSON.rawJSON("9223372036854775808") },
    { i: null, x: 0.5, b: false, t: "b", mixed: "c", list: null },
  ].map((row) => JSON.stringify(row)).join("\n");
  const storage = storageWith(input, "in.jsonl");
  const execute = () => Promise.resolve({ status: 200, body: { choices: [{ message: { content: "ok" } }] } });
  const openInput = tableJob({ read, prompt: "{t}", write: { format: "parquet" } });
  await runOn(storage, execute, { input: "in.jsonl", output: "out", errors: "err", openInput });
  const file = storage.bytes("out")!.slice().buffer as ArrayBuffer;
  assertEquals(await parquetReadObjects({ file }), [
    {
      i: 1n,
      x: 1,
      b: true,
      t: "a",
      mixed: "1",
      list: "[1]",
      big: "9223372036854775808",
      answer: "ok",
      error: null,
    },
    { i: null, x: 0.5, b: false, t: "b", mixed: "c", list: null, big: null, answer: "ok", error: null },
  ]);
});
