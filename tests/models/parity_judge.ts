import { readPlan } from "../../engine/architectures/registry.ts";
import { type ActivationPrecision, type Backend, KV_BLOCK_TOKENS } from "../../engine/backend/backend.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { withContext } from "../../engine/plan/plan.ts";
import { type CpuModelOptions, KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import {
  type Distance,
  exactCases,
  parityBytes,
  type ParityFile,
  prompt,
  readTable,
} from "./parity_cases.ts";

/** Context window of the exact pass and of llama.cpp, in tokens. */
const CONTEXT = 512;

/** KV blocks for the longest prompt and its answer. Not a multiple of 5, so that `shuffledBlocks` shuffles them. */
function blocksOf({ prompts, steps }: ParityFile): number {
  const blocks = Math.ceil((Math.max(...prompts) + steps) / KV_BLOCK_TOKENS);
  return blocks % 5 === 0 ? blocks + 1 : blocks;
}

/** Distances of one prompt's answer, and of llama.cpp's, from the exact one. */
export interface Judged {
  readonly where: string;
  readonly distances: readonly (readonly number[])[]; // [steps][TOP]
  /** Distances from the pass with rounded keys and values, if the file has it. */
  readonly rounded: readonly (readonly number[])[]; // [steps][TOP]
  readonly choices: readonly { exact: number; ours: number; margin: number }[]; // [steps]
  readonly llamaCpp: Distance;
}

/**
 * Runs all prompts of a file in one step, each followed by its exact tokens; on the CPU as asked or on the backend
 * given.
 */
export async function judge(
  file: ParityFile,
  on?: CpuModelOptions | Backend,
  activations?: ActivationPrecision,
): Promise<Judged[]> {
  const bytes = parityBytes(file);
  const exact = await exactCases(await readTable(file.options.architecture), file, bytes);
  const blocks = blocksOf(file);
  const runs = file.prompts.map((length, i): Run => {
    const { steps } = exact.get(length)!;
    const tokens = [...prompt(length), ...steps.slice(0, -1).map((step) => step.ids[0])];
    return {
      tokens,
      blockTable: shuffledBlocks(i * blocks, blocks),
      slot: i,
      wanted: steps.map(({ ids }) => ({ probe: ids })),
    };
  });
  const maxRows = runs.reduce((sum, run) => sum + run.tokens.length, 0);
  const limits = { kvBlocks: runs.length * blocks, maxRows, maxLogitRows: runs.length * file.steps };
  const plan = async (read: GgufFile) =>
    withContext(await readPlan(read, undefined, { activations }), CONTEXT);
  using model = await KernelModel.loadAs(plan, bytes, limits, on);
  const answers = await model.step(runs);
  return file.prompts.map((length, i) => {
    const { steps, llamaCpp } = exact.get(length)!;
    const distances = (step: number, logprobs: readonly number[] = []) => {
      const { probed, logSumExp } = answers[i][step];
      return logprobs.map((logprob, k) => Math.abs(probed[k] - logSumExp - logprob));
    };
    return {
      where: `${file.name}, prompt of ${length}`,
      llamaCpp,
      distances: steps.map(({ logprobs }, step) => distances(step, logprobs)),
      rounded: steps.map(({ rounded }, step) => distances(step, rounded)),
      choices: steps.map(({ ids, logprobs }, step) => {
        return { exact: ids[0], ours: answers[i][step].ids[0], margin: logprobs[0] - logprobs[1] };
      }),
    };
  });
}

/** Returns compy's distance and llama.cpp's, over several prompts. */
export function compare(judged: readonly Judged[]): { ours: Distance; llamaCpp: Distance } {
  const all = judged.flatMap((one) => one.distances.flat());
  const theirs = judged.map((one) => one.llamaCpp);
  return {
    ours: { max: Math.max(...all), mean: average(all) },
    llamaCpp: {
      max: Math.max(...theirs.map((one) => one.max)),
      mean: average(theirs.map((one) => one.mean)),
    },
  };
}

/** Describes both distances for messages. */
export function describeDistances(what: string, { ours, llamaCpp }: ReturnType<typeof compare>): string {
  const words = ({ mean, max }: Distance) => `mean ${mean.toFixed(4)}, max ${max.toFixed(4)}`;
  return `${what}: ${words(ours)}; llama.cpp: ${words(llamaCpp)}`;
}

function average(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** The largest distance among the five most likely tokens of each step. */
export function maxOfTopFive(
  judged: readonly Judged[],
  from: "distances" | "rounded" = "distances",
): number {
  return Math.max(...judged.flatMap((one) => one[from].flatMap((step) => step.slice(0, 5))));
}

/** Returns the steps with a different choice although the exact choice leads by more than the prompt's `clear`. */
export function wrongChoices(judged: readonly Judged[], clear: (one: Judged) => number): string[] {
  return judged.flatMap((one) =>
    one.choices.flatMap(({ exact, ours, margin }, step) =>
      ours === exact || margin <= clear(one)
        ? []
        : [`${one.where}, step ${step}: chose ${ours}, exact is ${exact} by ${margin.toFixed(3)}`]
    )
  );
}
