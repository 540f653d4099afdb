import { assertEquals } from "@std/assert";
import { ROWS, SCENARIOS, tableLine } from "./table.ts";

const DOCUMENT = new URL("../../docs/RELIABILITY.md", import.meta.url);

Deno.test("storms: every row of the table file has a scenario, and every scenario a row", () => {
  const names = ROWS.map(({ name }) => name);
  assertEquals(names.toSorted(), Object.keys(SCENARIOS).toSorted());
});

Deno.test("storms: the published table has the file's rows, each with its fault, outcome and result", async () => {
  const lines = (await Deno.readTextFile(DOCUMENT)).split("\n");
  const published = lines.filter((line) => /^\| `[a-z-]+` \| /.test(line));
  const results = published.map((line) => line.split(" | ").at(-1)!.replace(/ \|$/, ""));
  assertEquals(published, ROWS.map((row, i) => tableLine(row, results[i])));
  assertEquals(results.filter((result) => !/^\d+ .*\d s$|^skipped/.test(result)), []);
});
