import { assertEquals } from "@std/assert";
import { BatchCheck, checkFile } from "./batch_file.js";

const line = (id: string, more: Record<string, unknown> = {}) =>
  JSON.stringify({
    custom_id: id,
    method: "POST",
    url: "/v1/chat/completions",
    body: { model: "demo" },
    ...more,
  });

function problems(...lines: string[]): string[] {
  const check = new BatchCheck();
  lines.forEach((text, i) => check.add(text, i + 1));
  return check.problems.map(({ line, message }) => `${line} ${message}`);
}

Deno.test("batch file: counts lines, and takes the endpoint of most lines", async () => {
  const text = [line("a"), line("b"), "", line("c", { url: "/v1/embeddings", body: { model: "e" } })].join(
    "\n",
  );
  const { check, whole } = await checkFile(new Blob([text]));
  assertEquals([check.lines, check.bad, whole], [3, 0, true]);
  assertEquals(check.endpoint, "/v1/chat/completions");
  assertEquals([...check.models], ["demo", "e"]);
  assertEquals([...check.urls], [["/v1/chat/completions", 2], ["/v1/embeddings", 1]]);
});

Deno.test("batch file: reports each kind of bad line and its line number", () => {
  assertEquals(problems(line("a"), line("a"), "{", "[]", line("")), [
    '2 "custom_id" "a" is line 1\'s too',
    "3 is not JSON; a batch file has one JSON object a line",
    "4 is not a JSON object",
    '5 "custom_id" must be a text that names the line',
  ]);
  assertEquals(
    problems(
      line("a", { method: "GET" }),
      line("b", { url: 3 }),
      line("c", { body: [] }),
      line("d", { body: { stream: true } }),
    ),
    [
      '1 "method" must be "POST"',
      '2 "url" must be a path such as "/v1/chat/completions"',
      '3 "body" must be a JSON object',
      '4 "stream" must be false: a batch has no streams',
    ],
  );
});

Deno.test("batch file: counts all bad lines and shows the first ones", async () => {
  const { check } = await checkFile(new Blob(["x\n".repeat(1000)]));
  assertEquals([check.lines, check.bad, check.problems.length], [1000, 1000, 8]);
  assertEquals(check.endpoint, undefined);
});
