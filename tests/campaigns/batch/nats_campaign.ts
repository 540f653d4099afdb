import { campaignLine, say } from "../../../testing/campaign.ts";
import { WORKER_PARALLEL } from "../../nats/nats_child.ts";
import { natsServerPath } from "../../nats/nats_server.ts";
import { campaign, WORKERS } from "../../nats/nats_scenario.ts";

if (import.meta.main) {
  const { disturbances, lines, seed } = campaignLine({
    task: "batch:torture:nats",
    does:
      "Disturb a batch over NATS all the time, and compare its output byte for byte with one that nobody disturbed.",
    options: {
      disturbances: [
        "kills, pauses and lost connections of the server, the coordinator and the workers",
        200,
      ],
      lines: ["lines of the job", 4000],
      seed: ["what chance begins with", Date.now() % 2 ** 31],
    },
  });
  if (natsServerPath() === undefined) {
    throw new Error("There is no nats-server here (Debian: apt install nats-server)");
  }
  say(
    `${disturbances} disturbances over ${lines} lines, ${WORKERS} workers of ${WORKER_PARALLEL} lines, seed ${seed}`,
  );
  const report = await campaign({ disturbances, lines, lineMs: 250, seed });
  say(JSON.stringify(report, undefined, 2));
  Deno.exit(report.lost + report.doubled === 0 && report.same ? 0 : 1);
}
