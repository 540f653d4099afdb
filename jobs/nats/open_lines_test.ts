import { assertEquals, assertStringIncludes, fail } from "@std/assert";
import { OpenLines, type WorkerAnswer } from "./open_lines.ts";
import { encodeJson, lineRequest, MAX_ANSWER_BYTES, parseJson } from "./wire.ts";

interface Outcome {
  answers: Partial<WorkerAnswer>[];
  errors: string[];
}

/** Returns `count` open lines, numbered from 0, and the outcomes of each. */
function openLines(count: number): { lines: OpenLines; outcomes: Outcome[] } {
  const lines = new OpenLines();
  const outcomes = Array.from({ length: count }, (_, n) => {
    const outcome: Outcome = { answers: [], errors: [] };
    lines.add({
      url: "/v1/completions",
      body: { n },
      resolve: (answer) => outcome.answers.push(answer),
      reject: (error) => outcome.errors.push((error as Error).message),
    });
    return outcome;
  });
  return { lines, outcomes };
}

/** Returns the request of a line that may be tried; fails otherwise. */
function taken(request: Uint8Array | string): Uint8Array {
  return typeof request === "string" ? fail(request) : request;
}

const GOOD = { status: 200, body: { text: "yes" } };

/** Sends a whole answer in one piece. */
function answer(lines: OpenLines, line: number, attempt: string, value: unknown = GOOD) {
  const bytes = encodeJson(value);
  return lines.answer({ line, attempt, offset: 0, total: bytes.length }, bytes).state;
}

Deno.test("open lines: each answer settles its line, names the worker, and removes the line", () => {
  const { lines, outcomes } = openLines(2);
  assertEquals(parseJson(lineRequest, taken(lines.take(1, "a", "w"))), {
    url: "/v1/completions",
    body: { n: 1 },
  });
  assertEquals(answer(lines, 1, "a"), "taken");
  assertEquals(outcomes, [{ answers: [], errors: [] }, { answers: [{ ...GOOD, engine: "w" }], errors: [] }]);
  assertEquals([lines.take(1, "b", "w"), answer(lines, 1, "a")], ["gone", "gone"]);
});

Deno.test("open lines: the first of two answers to a line counts and the second is dropped", () => {
  const { lines, outcomes } = openLines(1);
  lines.take(0, "a", "stalled");
  lines.take(0, "b", "other");
  assertEquals([answer(lines, 0, "a"), answer(lines, 0, "b")], ["taken", "gone"]);
  assertEquals(outcomes[0].answers, [{ ...GOOD, engine: "stalled" }]);
  assertEquals(lines.stats, { repeated: 1, late: 1 });
});

Deno.test("open lines: rejects answers of a lost worker and of one that never took the line", () => {
  const { lines, outcomes } = openLines(1);
  lines.take(0, "a", "gone");
  lines.fenceOff("gone", true);
  assertEquals([answer(lines, 0, "a"), answer(lines, 0, "guessed")], ["fenced", "fenced"]);
  lines.take(0, "b", "next");
  assertEquals(answer(lines, 0, "b"), "taken");
  assertEquals(outcomes[0].answers.length, 1);
});

Deno.test("open lines: joins the parts of an answer, even when parts are repeated or out of order, and never parts of different attempts", () => {
  const { lines, outcomes } = openLines(1);
  lines.take(0, "a", "one");
  lines.take(0, "b", "two");
  const other = encodeJson({ status: 200, body: { text: "other" } });
  const bytes = encodeJson(GOOD);
  const send = (attempt: string, whole: Uint8Array, from: number, to: number) =>
    lines.answer({ line: 0, attempt, offset: from, total: whole.length }, whole.subarray(from, to));
  assertEquals(send("a", bytes, 0, 10), { state: "more", offset: 10 });
  assertEquals(send("b", other, 0, 5), { state: "more", offset: 5 });
  assertEquals(send("a", bytes, 0, 10), { state: "more", offset: 10 });
  assertEquals(send("a", bytes, 12, 20), { state: "more", offset: 10 });
  assertEquals(send("a", bytes, 10, bytes.length), { state: "taken" });
  assertEquals(outcomes[0].answers, [{ ...GOOD, engine: "one" }]);
});

Deno.test("open lines: bounds partly received answers, and frees room when they end", () => {
  const { lines } = openLines(6);
  const begin = (line: number) =>
    lines.answer({ line, attempt: `${line}`, offset: 0, total: MAX_ANSWER_BYTES }, new Uint8Array(1));
  for (let line = 0; line < 6; line++) lines.take(line, `${line}`, `w${line}`);
  for (let line = 0; line < 4; line++) assertEquals(begin(line), { state: "more", offset: 1 });
  assertEquals(begin(4), { state: "more", offset: 0 });
  lines.fenceOff("w0", true);
  assertEquals(begin(4), { state: "more", offset: 1 });
  assertEquals(begin(5), { state: "more", offset: 0 });
  lines.remove(1);
  assertEquals(begin(5), { state: "more", offset: 1 });
});

Deno.test("open lines: an invalid answer fails its line and names the worker", () => {
  const { lines, outcomes } = openLines(3);
  for (const line of [0, 1, 2]) lines.take(line, "a", "w");
  assertEquals(answer(lines, 0, "a", { status: 200, body: [] }), "taken");
  assertEquals(answer(lines, 1, "a", { failed: "too large" }), "taken");
  lines.answer({ line: 2, attempt: "a", offset: 0, total: 3 }, Uint8Array.from([255, 254, 253]));
  assertStringIncludes(outcomes[0].errors[0], "Worker w answered with a message whose");
  assertEquals(outcomes[1].errors, ["too large"]);
  assertStringIncludes(outcomes[2].errors[0], "not JSON");
});

Deno.test("open lines: withdraws lines that no worker tries, and all lines at the end", () => {
  const { lines } = openLines(3);
  lines.take(1, "a", "w");
  assertEquals(lines.withdraw().map(({ body }) => body.n), [0, 2]);
  lines.fenceOff("w", true);
  assertEquals(lines.withdraw().map(({ body }) => body.n), [1]);
  assertEquals(openLines(2).lines.close().length, 2);
});

Deno.test("open lines: lines after which workers fell silent are tried one at a time, and become errors in the end", () => {
  const { lines, outcomes } = openLines(3);
  const fallSilent = (worker: string, ...ids: number[]) => {
    const replies = ids.map((id) => lines.take(id, `${worker}${id}`, worker)).map((reply) =>
      typeof reply === "string" ? reply : "granted"
    );
    lines.fenceOff(worker, true);
    return replies;
  };
  assertEquals(fallSilent("a", 0, 1), ["granted", "granted"]);
  assertEquals(fallSilent("b", 0, 1), ["granted", "granted"]);
  // Lines 0 and 1 are now suspect, line 2 is not.
  assertEquals(fallSilent("c", 0, 1, 2), ["granted", "later", "granted"]);
  taken(lines.take(1, "sound", "d"));
  assertEquals(lines.take(0, "z", "e"), "later");
  assertEquals(answer(lines, 1, "sound"), "taken");
  for (const worker of ["f", "g"]) assertEquals(fallSilent(worker, 0), ["granted"]);
  assertEquals(outcomes[0].answers, []);
  taken(lines.take(0, "left", "leaver"));
  lines.fenceOff("leaver", false);
  assertEquals(outcomes[0].answers, []);
  assertEquals(fallSilent("h", 0), ["granted"]);
  const [{ status, final }] = outcomes[0].answers;
  assertEquals([status, final, lines.take(0, "late", "i")], [500, true, "gone"]);
  assertEquals([outcomes[1].answers.length, outcomes[2].answers.length], [1, 0]);
});
