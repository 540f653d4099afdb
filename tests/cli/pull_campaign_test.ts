import { assert, assertEquals } from "@std/assert";
import { pullCampaign } from "./pull_scenario.ts";

Deno.test("pull campaign: with a faulty hub, all files are correct and few bytes are downloaded twice", async () => {
  const { wrong, failed, fetched, faults } = await pullCampaign({ downloads: 16, seed: 40 });
  assertEquals([wrong, failed], [0, []]);
  assert(fetched <= 1.25, `fetched ${fetched} x the files' size on average`);
  assert(Object.keys(faults).length >= 8, JSON.stringify(faults));
});
