import { campaignLine } from "../../testing/campaign.ts";
import { BOUND, killOften } from "../models/prompt_cache_scenario.ts";

if (import.meta.main) {
  const { kills, seed } = campaignLine({
    task: "cache:torture",
    does:
      "Kill processes that keep prompts on a disk: no answer may be wrong, no start refused, the folder within its bound.",
    options: { kills: ["kill -9 of a process", 100], seed: ["what chance begins with", Date.now() % 1e6] },
  });
  const sum = await killOften(kills, seed);
  const text =
    `${kills} kills: ${sum.answers} answers, all right; ${sum.hits} prompts were read from the disk; ` +
    `at most ${sum.mostBytes} of ${BOUND} bytes\n`;
  await Deno.stdout.write(new TextEncoder().encode(text));
}
