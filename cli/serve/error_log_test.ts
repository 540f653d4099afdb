import { assertEquals, assertMatch } from "@std/assert";
import { ServiceError } from "../../jobs/types.ts";
import { errorLog } from "./error_log.ts";

function logged() {
  const lines: string[] = [];
  let waiting: (() => void)[] = [];
  const report = errorLog({ write: (line) => lines.push(line), later: (work) => waiting.push(work) });
  /** Returns the log lines since the last call. */
  const written = () => lines.splice(0);
  const passMinute = () => {
    const due = waiting;
    waiting = [];
    for (const work of due) work();
    return written();
  };
  return { report, written, passMinute };
}

/** Returns a system error inside two errors that explain it. */
function caused(n: number, code: string): Error {
  const cause = Object.assign(new Error(`${code} (os error 28)`), { code });
  return new Error(`Batch ${n} pauses`, { cause: new Error("Cannot write", { cause }) });
}

Deno.test("error log: writes one line without a stack per cause, then how often it occurred", () => {
  const { report, written, passMinute } = logged();
  for (let n = 0; n < 1000; n++) {
    report(caused(n, "ENOSPC"));
    report(new ServiceError("storage_full", "There is no room on the server's disk"));
    report(caused(n, "EMFILE"));
  }
  const [full, files] = ["the disk is full", "this process has too many files open (ulimit -n)"];
  assertEquals(written(), [`Error: Batch 0 pauses (${full})\n`, `Error: Batch 0 pauses (${files})\n`]);
  assertEquals(passMinute(), [
    `1999 more in the last minute, the last one: Error: There is no room on the server's disk (${full})\n`,
    `999 more in the last minute, the last one: Error: Batch 999 pauses (${files})\n`,
  ]);
  report(caused(1000, "ENOSPC"));
  assertEquals(passMinute(), [
    `1 more in the last minute, the last one: Error: Batch 1000 pauses (${full})\n`,
  ]);
  assertEquals(passMinute(), []);
  report(caused(1001, "ENOSPC")); // after a minute without this error it is reported as new
  assertEquals(written(), [`Error: Batch 1001 pauses (${full})\n`]);
});

Deno.test("error log: writes the stacks of an unexpected error and its causes once", () => {
  const { report, written, passMinute } = logged();
  const broken = () => new Error("It is broken", { cause: new TypeError("x is undefined") });
  const first = broken();
  for (let n = 0; n < 100; n++) report(first); // one error ended a hundred requests
  for (let n = 0; n < 100; n++) report(broken());
  report("a text");
  const lines = written();
  assertEquals(lines.length, 3);
  assertMatch(
    lines[0],
    /^Error: It is broken\n {4}at [^]*\n {2}Caused by TypeError: x is undefined\n {4}at /,
  );
  assertEquals(passMinute(), ["99 more in the last minute, the last one: Error: It is broken\n"]);
});
