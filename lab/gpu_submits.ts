/**
 * Times each submit of a long prompt on the GPU (`deno task bench:gpu-submits`): a driver resets a device
 * that computes for too long.
 */
import { readPlan } from "../engine/architectures/registry.ts";
import { WebGpuBackend } from "../engine/backend/webgpu/webgpu.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { SubmitTime } from "../engine/backend/webgpu/step/dispatch.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import { command, Options, print, UsageError } from "../bench/shell.ts";
import { blocksOf, Steps } from "../bench/steps.ts";

/** Maximum milliseconds of a submit. */
const MOST_MS = 100;
/** Number of longest submits whose contents are listed. */
const LONGEST = 5;

const HELP = `Time each submit of a prompt on the GPU, by its own clock.

Usage: deno task bench:gpu-submits --model FILE [options]

  --model FILE   the GGUF model
  --tokens N     tokens of the prompt (default 2000)
  --steps N      time so many steps, spread evenly over the prompt (default: all of them)
  --json         one JSON object: {"adapter", "tokens", "seconds", "steps": [{"rows", "cached", "submits":
                 [{"ms", "expected", "kernels", "first"}, …]}, …]}
  --help         this text

The prompt is cut into steps and submits as the server cuts them, by the measured times of kernels. Submits in which kernels ran for the
first time ("first") are listed apart, since some drivers compile them then.
Exit code: 0 none of the others took over ${MOST_MS} ms, 1 some did, or there is no adapter with a clock, 2 wrong usage.
`;

interface TimedStep {
  readonly rows: number;
  readonly cached: number;
  readonly submits: readonly TimedSubmit[];
}

interface TimedSubmit extends SubmitTime {
  /** Kernels that ran for the first time in the submit: some drivers compile them then. */
  readonly first: readonly string[];
}

async function timePrompt(
  backend: WebGpuBackend,
  path: string,
  tokens: number,
  wanted: number,
): Promise<TimedStep[]> {
  const file = await openGguf(path);
  const plan = await readPlan(file);
  if (tokens > plan.contextLength) {
    throw new RangeError(
      `--tokens must be at most ${plan.contextLength}, the model's context window (got ${tokens})`,
    );
  }
  await backend.loadWeights(file, plan);
  await backend.compile(plan, {
    kvBlocks: blocksOf(tokens) * plan.kv.windows.length,
    stateSlots: Math.min(1, plan.states.length),
    maxRows: MAX_ROWS,
    maxLogitRows: 1,
  });
  const prompt = new Steps(backend, plan, blocksOf(tokens));
  const steps: TimedStep[] = [];
  const known = new Set<string>();
  for (let cached = 0; cached < tokens;) {
    const rows = Math.min(tokens - cached, backend.stepRows);
    const last = cached + rows === tokens;
    const times = await backend.submitTimes(prompt.prefillStep(0, cached, rows, last));
    const submits = times.map((time) => {
      const first = [...new Set(time.kernels).difference(known)];
      for (const kernel of first) known.add(kernel);
      return { ...time, first };
    });
    steps.push({ rows, cached, submits });
    // The steps in between are skipped, because the contents of the cache do not change a step's time.
    const next = Math.ceil(steps.length * tokens / wanted / rows) * rows;
    cached = last ? tokens : Math.max(cached + rows, Math.min(next, tokens - rows));
  }
  return steps;
}

function asText(adapter: string, steps: readonly TimedStep[], seconds: number): string {
  const rows = steps.map((step) => step.rows);
  const [first, others] = [true, false].map((isFirst) =>
    steps.flatMap(({ submits }) => submits.filter((submit) => submit.first.length > 0 === isFirst))
  );
  return [
    adapter,
    `${steps.length} steps of ${Math.min(...rows)} to ${Math.max(...rows)} rows, ${seconds.toFixed(0)} s`,
    `${others.length} submits: ${spread(others)}`,
    `${first.length} in which kernels ran for the first time: ${spread(first)}`,
    ...others.toSorted((a, b) => b.ms - a.ms).slice(0, LONGEST).map(contents),
    "",
  ].join("\n");
}

/** Returns the contents of a long submit in words. Neighbouring pieces of one kernel are counted. */
function contents({ ms, expected, kernels }: TimedSubmit): string {
  const runs: [string, number][] = [];
  for (const kernel of kernels) {
    if (runs.at(-1)?.[0] === kernel) runs.at(-1)![1]++;
    else runs.push([kernel, 1]);
  }
  const list = runs.map(([kernel, count]) => count === 1 ? kernel : `${count} x ${kernel}`);
  return `  ${ms.toFixed(1)} ms, ${expected.toFixed(1)} expected: ${list.join("; ")}`;
}

function spread(submits: readonly TimedSubmit[]): string {
  if (submits.length === 0) return "none";
  const sorted = submits.map(({ ms }) => ms).toSorted((a, b) => a - b);
  const at = (share: number) => `${sorted[Math.floor(share * (sorted.length - 1))].toFixed(1)} ms`;
  return `median ${at(0.5)}, 99 % within ${at(0.99)}, longest ${at(1)}`;
}

await command("bench:gpu-submits", HELP, async () => {
  const options = new Options(Deno.args, ["model", "tokens", "steps"]);
  const model = options.text("model");
  if (!model) throw new UsageError("--model is wanted: a GGUF file");
  const tokens = options.count("tokens", 1e6, 2000);
  const backend = await WebGpuBackend.open();
  try {
    const start = performance.now();
    const steps = await timePrompt(backend, model, tokens, options.count("steps", 1e6, tokens));
    const seconds = (performance.now() - start) / 1000;
    const adapter = backend.info.isa;
    print(
      options.json
        ? `${JSON.stringify({ adapter, tokens, seconds, steps })}\n`
        : asText(adapter, steps, seconds),
    );
    const tooLong = ({ ms, first }: TimedSubmit) => first.length === 0 && ms > MOST_MS;
    if (steps.some(({ submits }) => submits.some(tooLong))) {
      throw new Error(`A submit took over ${MOST_MS} ms`);
    }
  } finally {
    backend.close();
  }
});
