import { campaignLine, say } from "../../testing/campaign.ts";
import { pullCampaign } from "../cli/pull_scenario.ts";

if (import.meta.main) {
  const { downloads, together, seed } = campaignLine({
    task: "pull:torture",
    does:
      "Pull models through a hub that fails in every way it can, and compare each file with what the hub has.",
    options: {
      downloads: ["downloads", 1000],
      together: ["of them at once", 4],
      seed: ["what chance begins with", 1],
    },
  });
  const start = performance.now();
  const outcome = await pullCampaign({ downloads, seed, together });
  const seconds = (performance.now() - start) / 1000;
  for (const [fault, count] of Object.entries(outcome.faults).sort()) {
    say(`${String(count).padStart(6)}  ${fault}`);
  }
  for (const failure of outcome.failed) say(failure);
  say(
    `${outcome.downloads} downloads in ${
      seconds.toFixed(0)
    } s: ${outcome.wrong} wrong files, ${outcome.failed.length} failed; ` +
      `fetched ${outcome.fetched.toFixed(3)} x the file on average (the hub sent ${
        outcome.sent.toFixed(3)
      } x)`,
  );
  Deno.exit(outcome.wrong + outcome.failed.length === 0 && outcome.fetched <= 1.1 ? 0 : 1);
}
