import { campaignLine, say } from "../../testing/campaign.ts";
import { campaign, megabytes } from "../server/models_scenario.ts";

/**
 * Maximum growth of resident memory in bytes while the server loads and unloads models. Allocators keep some memory.
 */
const MOST_GROWN = 64e6;

async function main(): Promise<number> {
  const { operands: files, ...counted } = campaignLine({
    task: "models",
    does: "Ask three models in room for two, and look whether an answer changes.",
    operands: "FILE FILE FILE [FILE…]",
    options: {
      requests: ["random requests", 500],
      crowd: ["of them at once", 8],
      loads: ["first tokens of each model that is not loaded", 3],
      seed: ["what chance begins with", 1],
    },
  });
  const { times, resident, ...counts } = await campaign({
    files,
    ...counted,
    vocabulary: 1000,
    rest: 20_000,
    note: say,
  });
  const shown = times.filter(({ load }) => load < Infinity).map(({ model, load, first }) =>
    `${model}: loaded in ${load.toFixed(0)} ms, first token after ${first.toFixed(0)} ms (${
      (first / load).toFixed(3)
    } x)`
  );
  const grown = resident.after - resident.before;
  const lines = [...shown, `${counts.wrong} wrong, ${counts.refused} refused, ${counts.loaded} loads`];
  if (grown > MOST_GROWN) {
    lines.push(`grown by ${megabytes(grown)}; at most ${megabytes(MOST_GROWN)} is allowed`);
  }
  say(lines.join("\n"));
  return counts.wrong + counts.refused > 0 || grown > MOST_GROWN ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
