import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ProgressBar } from "./reporter.ts";

Deno.test("pull: the progress bar only grows and fits the terminal", () => {
  const drawn: string[] = [];
  const bar = new ProgressBar((text) => drawn.push(text), () => 80);
  const amounts = [0, 100, 300, 250, 0, 700, 1000];
  for (const [i, amount] of amounts.entries()) bar.update("downloading", amount * 1e6, 1e9, 1000 * i);
  const shares = drawn.map((line) => Number(/(\d+) %/.exec(line)?.[1]));
  assertEquals(shares, [0, 10, 30, 30, 30, 70, 100]);
  for (const line of drawn) assert(line.length < 80, line);
  assertStringIncludes(drawn[2], "[===         ]   30 %  300.0 MB of 1.0 GB");
  bar.update("checking", 1e6, 1e9, 9000);
  assertStringIncludes(drawn.at(-1)!, "checking");
  bar.clear();
  assertEquals(drawn.at(-1), "");
});

Deno.test("pull: the bar shows speed and remaining time and is drawn ten times a second", () => {
  const drawn: string[] = [];
  const bar = new ProgressBar((text) => drawn.push(text), () => 200);
  for (let ms = 0; ms <= 10_000; ms += 10) bar.update("downloading", ms * 1e5, 1e10, ms);
  assertStringIncludes(drawn.at(-1)!, "1.0 GB of 10.0 GB  100.0 MB/s  1 min 30 s left");
  assert(drawn.length >= 95 && drawn.length <= 102, String(drawn.length));
});
