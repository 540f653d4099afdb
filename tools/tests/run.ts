/**
 * Runs the tests of one tier, several files at a time, each in a process of its own, and measures their CPU seconds.
 * docs/TESTING.md explains the tiers.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { fromFileUrl } from "@std/path";
import { cargoTests, denoTests, type Job, type Result, runJob } from "./jobs.ts";

const HELP = `Run the tests: \`deno task test\` the first tier, \`deno task test:full\` the second one.

Usage: deno task test [PATH...]

  PATH   only test files whose path contains this text; without it, the Rust tests run too

DENO_JOBS sets the number of test files that run at a time (default 2).
`;

const ROOT = fromFileUrl(new URL("../../", import.meta.url));
/** A test file of the first tier fails when it takes more CPU seconds. */
const LIMIT_S = 5;
const SLOWEST = 20;

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text + "\n"));
}

const seconds = (value: number) => `${value.toFixed(1).padStart(6)} s`;

/** Why a job that ended counts as failed; undefined where it passed. */
function failureOf({ job, code, failed, cpu }: Result, full: boolean): string | undefined {
  if (failed > 0 || code !== 0) return `exit code ${code}`;
  if (full || job.kind === "cargo" || cpu <= LIMIT_S) return undefined;
  return `${
    cpu.toFixed(1)
  } CPU seconds, allowed in the first tier are ${LIMIT_S}; docs/TESTING.md says what to do`;
}

async function runAll(
  jobs: readonly Job[],
  full: boolean,
): Promise<{ results: Result[]; failures: string[] }> {
  const results: Result[] = [];
  const failures: string[] = [];
  const waiting = [...jobs];
  const lane = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const result = await runJob(job, ROOT, full);
      results.push(result);
      const failure = failureOf(result, full);
      const counts = `${String(result.passed).padStart(4)} passed`;
      say(`${failure ? "FAILED" : "ok    "} ${seconds(result.cpu)} CPU ${counts}  ${job.name}`);
      if (failure === undefined) continue;
      failures.push(`${job.name}: ${failure}`);
      if (result.code !== 0) say(result.output);
    }
  };
  await Promise.all(Array.from({ length: Number(Deno.env.get("DENO_JOBS")) || 2 }, lane));
  return { results, failures };
}

function report(results: readonly Result[], failures: readonly string[], wall: number): void {
  const tests = results.flatMap(({ job, tests }) => tests.map((test) => ({ ...test, file: job.name })));
  tests.sort((a, b) => b.cpu - a.cpu);
  say(`\nThe ${SLOWEST} slowest tests by CPU seconds:`);
  for (const { name, cpu, file } of tests.slice(0, SLOWEST)) say(`${seconds(cpu)}  ${file}: ${name}`);
  if (failures.length > 0) say(`\nFailed:\n${failures.join("\n")}`);
  const sum = (pick: (r: Result) => number) => results.reduce((total, r) => total + pick(r), 0);
  const [passed, failed, ignored] = [
    sum((r) => r.passed),
    sum((r) => r.failed) +
    results.filter((r) => r.failed === 0 && failures.some((f) => f.startsWith(`${r.job.name}: `))).length,
    sum((r) => r.ignored),
  ];
  say(`\n${sum((r) => r.cpu).toFixed(0)} CPU seconds in ${wall.toFixed(0)} seconds, ${results.length} files`);
  say(`tests: ${passed} passed, ${failed} failed, ${ignored} ignored`);
}

if (import.meta.main) {
  const { full, help, _: parts } = parseArgs(Deno.args, { boolean: ["full", "help"] });
  if (help) say(HELP);
  else {
    const start = performance.now();
    const rust = parts.length === 0 ? await cargoTests(full) : [];
    const jobs = [...rust, ...await denoTests(ROOT, full, parts.map(String))];
    const { results, failures } = await runAll(jobs, full);
    report(results, failures, (performance.now() - start) / 1000);
    Deno.exit(failures.length > 0 ? 1 : 0);
  }
}
