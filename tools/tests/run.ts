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
/** Maximum CPU seconds of a first-tier test file; a slower file fails. */
const LIMIT_S = 5;
const SLOWEST = 20;

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text + "\n"));
}

const seconds = (value: number) => `${value.toFixed(1).padStart(6)} s`;

const isOverLimit = ({ job, cpu }: Result, full: boolean) => !full && job.kind === "deno" && cpu > LIMIT_S;

/** Returns why an ended job counts as failed; undefined if it passed. */
function failureOf(result: Result, full: boolean): string | undefined {
  const { code, failed, cpu } = result;
  if (failed > 0 || code !== 0) return `exit code ${code}`;
  if (!isOverLimit(result, full)) return undefined;
  return `${
    cpu.toFixed(1)
  } CPU seconds, allowed in the first tier are ${LIMIT_S}; docs/TESTING.md says what to do`;
}

/** A job's result, with the reason if it counts as failed. */
interface Outcome extends Result {
  readonly failure?: string;
}

function tell({ job, cpu, passed, code, output, failure }: Outcome): void {
  say(
    `${failure ? "FAILED" : "ok    "} ${seconds(cpu)} CPU ${String(passed).padStart(4)} passed  ${job.name}`,
  );
  if (code !== 0) say(output);
}

async function runAll(jobs: readonly Job[], full: boolean): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const waiting = [...jobs];
  const slow: Job[] = [];
  const take = (result: Result) => {
    const outcome = { ...result, failure: failureOf(result, full) };
    outcomes.push(outcome);
    tell(outcome);
  };
  const lane = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const result = await runJob(job, ROOT, full);
      if (result.code === 0 && isOverLimit(result, full)) slow.push(job);
      else take(result);
    }
  };
  await Promise.all(Array.from({ length: Number(Deno.env.get("DENO_JOBS")) || 2 }, lane));
  // Other programs raise a file's CPU time, so a file over the limit is measured again alone.
  for (const job of slow) {
    let result = await runJob(job, ROOT, full);
    for (let more = 2; more > 0 && result.code === 0 && isOverLimit(result, full); more--) {
      result = await runJob(job, ROOT, full);
    }
    take(result);
  }
  return outcomes;
}

function report(outcomes: readonly Outcome[], wall: number): void {
  const tests = outcomes.flatMap(({ job, tests }) => tests.map((test) => ({ ...test, file: job.name })));
  tests.sort((a, b) => b.cpu - a.cpu);
  say(`\nThe ${SLOWEST} slowest tests by CPU seconds:`);
  for (const { name, cpu, file } of tests.slice(0, SLOWEST)) say(`${seconds(cpu)}  ${file}: ${name}`);
  for (const { job, failure } of outcomes) if (failure) say(`\nFailed: ${job.name}: ${failure}`);
  const sum = (pick: (outcome: Outcome) => number) => outcomes.reduce((total, o) => total + pick(o), 0);
  say(
    `\n${sum((o) => o.cpu).toFixed(0)} CPU seconds in ${wall.toFixed(0)} seconds, ${outcomes.length} files`,
  );
  // A file that fails without a failed test counts as one failure.
  const failed = sum((o) => o.failed || (o.failure ? 1 : 0));
  say(`tests: ${sum((o) => o.passed)} passed, ${failed} failed, ${sum((o) => o.ignored)} ignored`);
}

if (import.meta.main) {
  const { full, help, _: parts } = parseArgs(Deno.args, { boolean: ["full", "help"] });
  if (help) say(HELP);
  else {
    const start = performance.now();
    const rust = parts.length === 0 ? cargoTests(full) : [];
    const outcomes = await runAll([...rust, ...await denoTests(ROOT, full, parts.map(String))], full);
    report(outcomes, (performance.now() - start) / 1000);
    Deno.exit(outcomes.some(({ failure }) => failure) ? 1 : 0);
  }
}
