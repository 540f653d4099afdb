/**
 * Measures the CPU seconds of every test. The test runner preloads this module into each test file's process. Appends
 * one JSON line per test to the file in COMPY_TEST_TIMES.
 */
import process from "node:process";

/** Milliseconds of a test below which the time of its children is not read, because reading takes time. */
const LONG_MS = 200;
/** Clock ticks per second in Linux's CPU times. */
const TICKS = 100;

const file = Deno.env.get("COMPY_TEST_TIMES");
const register = Deno.test;
let childrenBefore = 0;

/** Returns the CPU milliseconds of this process, including kernel threads. */
function own(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Returns the CPU milliseconds of ended child processes; 0 if the system does not report them. */
function ofChildren(): number {
  try {
    // Deno can read /proc only with all permissions, so `cat` reads it.
    const { stdout } = new Deno.Command("cat", { args: [`/proc/${Deno.pid}/stat`], stderr: "null" })
      .outputSync();
    // The command's name is in brackets and may contain blanks, so fields are counted after it.
    const fields = new TextDecoder().decode(stdout).split(") ").at(-1)!.split(" ");
    return (Number(fields[13]) + Number(fields[14])) * 1000 / TICKS || 0;
  } catch {
    return 0;
  }
}

function measured<A extends unknown[]>(name: string, run: (...args: A) => void | Promise<void>) {
  return async (...args: A) => {
    const before = own();
    const start = performance.now();
    try {
      await run(...args);
    } finally {
      const wall = performance.now() - start;
      let cpu = own() - before;
      if (wall > LONG_MS) {
        const children = ofChildren();
        cpu += children - childrenBefore;
        childrenBefore = children;
      }
      Deno.writeTextFileSync(file!, JSON.stringify({ name, cpu: cpu / 1000 }) + "\n", { append: true });
    }
  };
}

/** Returns the arguments of `Deno.test` with its function (the last argument or an option) replaced. */
// deno-lint-ignore no-explicit-any
function wrapped(args: any[]): any[] {
  const options = args.find((a) => typeof a === "object");
  const fn = args.findLast((a) => typeof a === "function") ?? options.fn;
  const name = args.find((a) => typeof a === "string") ?? options?.name ?? fn.name;
  return [{ ...options, name, fn: measured(name, fn) }];
}

if (file !== undefined) {
  const test = (...args: unknown[]) => register(...wrapped(args) as Parameters<typeof register>);
  Object.assign(Deno, { test: Object.assign(test, register) });
}
