/**
 * Answers prompts over and over with a hybrid and a dense model that share a folder of prompts, until it is killed. Arguments:
 * the folder of the models, the folder of the prompts, its bound in bytes, a seed. Prints a line of JSON for each answer.
 */
import type { Answered } from "./prompt_cache_scenario.ts";
import { answer, openAll, PROMPTS } from "./prompt_cache_models.ts";
import { Random } from "../../testing/random.ts";

const [models, folder, bytes, seed] = Deno.args;
const engines = await openAll(models, { folder, bytes: Number(bytes), eager: true });
const random = new Random(Number(seed));
const write = (line: unknown) => Deno.stdout.writeSync(new TextEncoder().encode(`${JSON.stringify(line)}\n`));
write("ready");
const ask = async () => {
  for (;;) {
    const [model, prompt] = [random.below(engines.length), random.below(PROMPTS.length)];
    const { tokens, cached } = await answer(engines[model], PROMPTS[prompt]);
    write({ model, prompt, tokens, cached, hits: engines[model].stats().disk!.hits } satisfies Answered);
  }
};
await Promise.all([ask(), ask(), ask()]);
