import { assertEquals } from "@std/assert";
import { helpOf, readLine } from "./campaign.ts";

const LINE = {
  task: "fall",
  does: "Let things fall.",
  operands: "FILE [MORE…]",
  options: { times: ["how often", 10], from: ["a height", undefined] },
} as const;

Deno.test("campaign command line: uses given values, and defaults for the rest", () => {
  assertEquals(readLine(LINE, ["a"]), { operands: ["a"], times: 10, from: undefined });
  assertEquals(readLine(LINE, ["--times", "0", "a", "007", "--from=12"]), {
    operands: ["a", "007"],
    times: 0,
    from: "12",
  });
});

Deno.test("campaign command line: reports errors, but none for --help", () => {
  assertEquals(readLine(LINE, []), "FILE [MORE…] is missing");
  assertEquals(readLine({ ...LINE, operands: undefined }, ["b"]), 'There is no place for "b"');
  assertEquals(readLine(LINE, ["a", "--often", "3"]), "Unknown option --often: allowed are --times, --from");
  for (const value of ["x", "-1", "1.5", ""]) {
    assertEquals(
      readLine(LINE, ["a", `--times=${value}`]),
      `--times must be a whole number, 0 or more (got ${JSON.stringify(value)})`,
    );
  }
  assertEquals(readLine(LINE, ["--help", "--often"]), "");
});

Deno.test("campaign help: names the task, its arguments and defaults", () => {
  assertEquals(
    helpOf(LINE),
    `Let things fall.

Usage: deno task fall FILE [MORE…] [options]

  --times N     how often (default 10)
  --from TEXT   a height
`,
  );
});
