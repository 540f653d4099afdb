/** Sends many concurrent requests with constraints, for a long time (`deno task constraints:crowd`). */
import { campaignLine, say } from "../../testing/campaign.ts";
import { askCrowds } from "../server/form_crowd.ts";

const { rounds, seed } = campaignLine({
  task: "constraints:crowd",
  does:
    `Ask a server for answers in schemas and grammars of chance: several answers, stop texts, thinking, calls, streams, readers who
leave. Each is asked alone and in a crowd that the KV cache has no room for; answers are the same, and whole ones are valid.`,
  options: { rounds: ["crowds of 24 requests", 40], seed: ["what chance begins with", 1] },
});
const figures = await askCrowds({ rounds, seed, tell: say });
for (const line of figures.failed) say(`failed ${line}`);
for (const line of figures.wrong) say(`WRONG ${line}`);
Deno.exit(figures.wrong.length > 0 ? 1 : 0);
