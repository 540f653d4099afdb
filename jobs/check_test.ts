import { assertEquals, assertRejects } from "@std/assert";
import { seeded, SimStorage } from "../tests/batch/sim_storage.ts";
import { checkInput, parseChecked } from "./check.ts";
import { TEST_LIMITS } from "./testing.ts";
import { BatchError } from "./errors.ts";
import { openJsonLines } from "./input.ts";
import type { LineRefusal } from "./request.ts";

function line(customId: string, more = {}): string {
  return JSON.stringify({ custom_id: customId, method: "POST", url: "/v1/completions", body: {}, ...more });
}

async function check(content: string, limits = TEST_LIMITS) {
  const storage = new SimStorage(seeded(1));
  storage.put("in", content);
  const refusals: LineRefusal[] = [];
  const input = await openJsonLines(storage, "in");
  return {
    input,
    refusals,
    check: await checkInput(input, "in", limits, (refusal) => refusals.push(refusal)),
  };
}

Deno.test("checkInput: counts lines, refusals and duplicates, and names the first line of each duplicate", async () => {
  const { check: found, refusals } = await check(
    [line("a"), "", "{", line("b"), line("a"), line("a")].join("\n"),
  );
  assertEquals([found.lineCount, found.refusedCount], [5, 3]);
  assertEquals([...found.firstLines], [0, 0, 0, 1, 1]);
  assertEquals(refusals.map((r) => [r.line, r.code, r.customId]), [
    [3, "invalid_json", null],
    [5, "duplicate_custom_id", "a"],
    [6, "duplicate_custom_id", "a"],
  ]);
});

Deno.test("checkInput: the custom_id of a refused line counts when duplicates are searched", async () => {
  const { refusals } = await check([line("a", { method: "GET" }), line("a")].join("\n"));
  assertEquals(refusals.map(({ code }) => code), ["invalid_method", "duplicate_custom_id"]);
});

Deno.test("checkInput: finds one duplicate among 20,000 lines", async () => {
  const lines = Array.from({ length: 20_000 }, (_, i) => line(`id-${i}`));
  lines.push(line("id-777"));
  const { refusals } = await check(lines.join("\n"));
  assertEquals(refusals.map(({ line, message }) => [line, message]), [
    [20_001, 'Line 20001: custom_id "id-777" is already used by line 778'],
  ]);
});

Deno.test("checkInput: every change of the content changes the identity", async () => {
  const contents = [
    line("a"),
    `${line("a")}\n`,
    `${line("a")}\n${line("b")}`,
    `${line("b")}\n${line("a")}`,
    line("c"),
  ];
  const identities = await Promise.all(
    contents.map(async (content) => (await check(content)).check.identity),
  );
  assertEquals(new Set(identities).size, contents.length);
  assertEquals((await check(line("a"))).check.identity, identities[0]);
});

Deno.test("checkInput: refuses a file without lines and a file with too many lines", async () => {
  for (const empty of ["", "\n \n\r\n", "\ufeff"]) {
    await assertRejects(() => check(empty), BatchError, "must have at least one line");
  }
  const limits = { ...TEST_LIMITS, maxLines: 2 };
  await check([line("a"), line("b")].join("\n"), limits);
  await assertRejects(
    () => check([line("a"), line("b"), line("c")].join("\n"), limits),
    BatchError,
    "must have at most 2 lines",
  );
});

Deno.test("parseChecked: stops the job when a line differs from the checked one", async () => {
  const { check: found } = await check([line("a"), line("b")].join("\n"));
  const changed = await check([line("a"), line("x")].join("\n"));
  const parsed: unknown[] = [];
  await assertRejects(
    async () => {
      for await (const raw of changed.input.lines(1000)) {
        parsed.push((await parseChecked(raw, found, "in", TEST_LIMITS)).request?.customId);
      }
    },
    BatchError,
    "changed while the job ran (seen at line 2)",
  );
  assertEquals(parsed, ["a"]);
});

Deno.test("checkInput: finds a repeated custom_id among 30,000 lines", async () => {
  const ids = Array.from({ length: 30_000 }, (_, n) => `id-${n === 29_000 ? 17 : n}`);
  const { check: found, refusals } = await check(ids.map((id) => line(id)).join("\n"));
  assertEquals(refusals.map((refusal) => [refusal.line, refusal.code]), [[29_001, "duplicate_custom_id"]]);
  assertEquals(found.firstLines[29_000], 18);
  assertEquals(found.totalBytes, ids.reduce((sum, id) => sum + line(id).length, 0));
});
