/**
 * Answers prompts repeatedly with a hybrid and a dense model over one prompt cache folder, until it is killed. Arguments: the models' folder,
 * the cache folder, its limit in bytes, a seed. Prints one JSON line per answer.
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
