/**
 * Jobs of the test runner: Deno test files and the crates' tests. Each is measured as one process with its children.
 */
import { fromFileUrl } from "@std/path";

export interface Job {
  /** Path of the test file, or name of the crate. */
  readonly name: string;
  readonly kind: "deno" | "cargo";
  readonly command: readonly string[];
}

export interface TestTime {
  readonly name: string;
  /** CPU seconds of the test, including commands that it started. */
  readonly cpu: number;
}

export interface Result {
  readonly job: Job;
  readonly code: number;
  readonly passed: number;
  readonly failed: number;
  readonly ignored: number;
  /** CPU seconds of the process and of the children that it waited for. */
  readonly cpu: number;
  readonly output: string;
  readonly tests: readonly TestTime[];
}

/** Pattern of a test file with second-tier cases, which use one of these helpers. */
const SECOND_TIER = /\b(?:fullTier|isFullTier|everyNth|gpuTest|browserTest)\b|from "\.\/checks\.ts"/;
/** Pattern of a test file that also has first-tier cases. */
const FIRST_TIER = /\b(?:Deno\.test\(|firstTier\b|from "\.\/checks\.ts")/;
const SKIPPED = new Set(["node_modules", "target", "dist"]);
/** Crates with tests. They compile and run for minutes, so they start first, while test files run in parallel. */
const CRATES = ["rust-kernels", "rust-grammar"];

async function* testFiles(root: string, folder = ""): AsyncGenerator<string> {
  for await (const { name, isDirectory } of Deno.readDir(root + folder)) {
    if (isDirectory && !name.startsWith(".") && !SKIPPED.has(name)) {
      yield* testFiles(root, `${folder}${name}/`);
    } else if (name.endsWith("_test.ts")) yield folder + name;
  }
}

/** Files in `tests/` come first. The others are short, so that no core is idle for long at the end. */
const order = (name: string) => (name.startsWith("tests/") ? "0" : "1") + name;

/** Returns the test files of a tier whose path contains one of `parts`. */
export async function denoTests(root: string, full: boolean, parts: readonly string[]): Promise<Job[]> {
  const names: string[] = [];
  for await (const name of testFiles(root)) {
    if (parts.length > 0 && !parts.some((part) => name.includes(part))) continue;
    const text = await Deno.readTextFile(root + name);
    const isExperiment = name.startsWith("lab/");
    const inSecond = isExperiment || SECOND_TIER.test(text);
    const inFirst = !isExperiment && (!inSecond || FIRST_TIER.test(text));
    if (full ? inSecond : inFirst) names.push(name);
  }
  names.sort((a, b) => order(a) < order(b) ? -1 : 1);
  const preload = `--preload=${fromFileUrl(new URL("./cpu.ts", import.meta.url))}`;
  return names.map((name) => ({
    name,
    kind: "deno",
    command: [Deno.execPath(), "test", "--lock=tests/deno.lock", "--no-check", "-P=test", preload, name],
  }));
}

/** Returns the crates' tests. The first tier runs a quarter of the kernel cases, the second tier all of them. */
export function cargoTests(full: boolean): Job[] {
  const crates = full ? CRATES.slice(0, 1) : CRATES;
  const tests = full ? ["--test", "kernels"] : [];
  return crates.map((crate) => ({
    name: crate,
    kind: "cargo",
    command: [
      "cargo",
      "test",
      "--release",
      "--locked",
      "--quiet",
      "--manifest-path",
      `${crate}/Cargo.toml`,
      ...tests,
    ],
  }));
}

/** Shell command that measures CPU time. Bash's `time` also counts the tests' child processes. */
const TIMED = 'TIMEFORMAT="%U %S"; { time "$@" 2>&3; } 3>&2 2>"$COMPY_TEST_CLOCK"';

/**
 * Returns a sum from the output. Deno prints "ok | 12 passed | 0 failed", cargo prints "test result: ok. 12 passed; 0
 * failed; …" for each binary.
 */
function count(output: string, what: string): number {
  const lines = output.split("\n").filter((line) => /^(?:ok|FAILED) \||^test result:/.test(line));
  return lines.reduce((sum, line) => sum + Number(line.match(new RegExp(`(\\d+) ${what}`))?.[1] ?? 0), 0);
}

async function readTimes(path: string): Promise<TestTime[]> {
  const text = await Deno.readTextFile(path).catch(() => "");
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** Runs a job to its end, and returns its measurements and its output. */
export async function runJob(job: Job, root: string, full: boolean): Promise<Result> {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  const [clock, times] = [`${folder}/clock`, `${folder}/times`];
  try {
    const env = {
      NO_COLOR: "1",
      COMPY_TEST_CLOCK: clock,
      COMPY_TEST_TIMES: times,
      ...(full && { COMPY_TEST_TIER: "full", KERNEL_CASES: "100" }),
    };
    const args = ["-c", TIMED, "bash", ...job.command];
    const command = new Deno.Command("bash", { args, cwd: root, env, stdin: "null" });
    const { code, stdout, stderr } = await command.output();
    const decoder = new TextDecoder();
    const output = decoder.decode(stdout) + decoder.decode(stderr);
    const [user, system] = (await Deno.readTextFile(clock)).trim().split("\n").at(-1)!.split(" ").map(Number);
    return {
      job,
      code,
      passed: count(output, "passed"),
      failed: count(output, "failed"),
      ignored: count(output, "ignored"),
      cpu: user + system,
      output,
      tests: await readTimes(times),
    };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
