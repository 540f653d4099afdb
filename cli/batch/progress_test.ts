import { assert, assertEquals } from "@std/assert";
import type { ProgressView } from "../../jobs/progress.ts";
import { duration, renderBar, renderLine } from "./progress.ts";

const VIEW: ProgressView = {
  done: 126,
  failed: 3,
  total: 200,
  promptRate: 812.3,
  outputRate: 9.64,
  cachedShare: 0.316,
  remaining: 125,
};

Deno.test("renderBar: puts progress, failures and the estimate in one line", () => {
  assertEquals(
    renderBar(VIEW, 120),
    "[###############---------] 126/200  3 failed  812 tok/s in (32 % cached)  9.6 tok/s out  ETA 2 min 5 s",
  );
  assertEquals(renderBar({ ...VIEW, remaining: undefined }, 120).endsWith("ETA -"), true);
});

Deno.test("renderBar: fits every width", () => {
  for (let columns = 1; columns < 130; columns++) assert(renderBar(VIEW, columns).length < columns);
  assertEquals(renderBar(VIEW, 60), "126/200  3 failed  ETA 2 min 5 s");
});

Deno.test("renderLine: reports progress, failures and the estimate in words", () => {
  assertEquals(
    renderLine(VIEW),
    "126 of 200 lines, 3 failed; 812 prompt (32 % cached) and 9.6 output tokens/s; about 2 min 5 s left",
  );
});

Deno.test("duration: shows only the two largest units", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [0.2, "1 s"],
    [59.5, "1 min 0 s"],
    [125, "2 min 5 s"],
    [599.5, "10 min"],
    [3599, "1 h 0 min"],
    [7800, "2 h 10 min"],
    [200_000, "2 d 7 h"],
  ];
  for (const [seconds, text] of cases) assertEquals(duration(seconds), text);
});
