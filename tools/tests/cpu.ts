/**
 * Measures the CPU seconds of every test. The test runner preloads this module into each test file's process. The
 * figures go, a JSON line each, to the file that COMPY_TEST_TIMES names.
 */
import process from "node:process";

/** Tests that end sooner are too short to look for their child processes' time. */
const LONG_MS = 200;
/** Linux counts a process's CPU time in this many ticks a second. */
const TICKS = 100;

const file = Deno.env.get("COMPY_TEST_TIMES");
const register = Deno.test;
let childrenBefore = 0;

/** CPU milliseconds of this process, with the threads that run kernels. */
function own(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** CPU milliseconds of child processes that have ended; zero where the system does not say. */
function ofChildren(): number {
  try {
    // Deno reads nothing in /proc without all permissions.
    const { stdout } = new Deno.Command("cat", { args: [`/proc/${Deno.pid}/stat`], stderr: "null" })
      .outputSync();
    // The command's name stands in brackets and may contain blanks.
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

/** The arguments of `Deno.test` with its function, the last argument or an option, replaced. */
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
