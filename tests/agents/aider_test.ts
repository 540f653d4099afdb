import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { fromPypi } from "../packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { configuration, exported, type Place, run, withAgent } from "./agent.ts";
import { GREETING, type ScriptedServer, TASK } from "./scripted_model.ts";

/* aider over /v1/chat/completions. It has no tools: it applies the edits of an answer. */

const PACKAGE = "aider-chat==0.86.2";
const folder = isFullTier ? await fromPypi(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: pip cannot install ${PACKAGE})`;

/** Runs one turn of aider. It would read model prices from the network, so an empty list is in its cache. */
async function ask(server: ScriptedServer, place: Place, message: string): Promise<string> {
  const cache = join(place.home, ".aider/caches");
  await Deno.mkdir(cache, { recursive: true });
  await Deno.writeTextFile(join(cache, "model_prices_and_context_window.json"), '{"none": {}}');
  const limits = await configuration("aider", server, 1);
  await Deno.writeTextFile(join(place.home, ".aider.model.metadata.json"), limits);
  const settings = exported(await configuration("aider", server));
  const flags = [
    "--no-git",
    "--yes-always",
    "--no-analytics",
    "--no-check-update",
    "--no-show-release-notes",
  ];
  return await run(join(folder!, "bin/aider"), [...flags, "--message", message], place, settings);
}

const edit = "Here it is.\n\nmade.txt\n```\nmade by an edit\n```\n";

fullTier.test({
  name: `aider: answers and edits a file${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(() => (prompt) => prompt.includes(TASK) ? edit : GREETING, async (place, server) => {
      const said = await ask(server, place, "Say hello");
      assertStringIncludes(said, GREETING);
      assertEquals(said.includes("Warning"), false, said);
      assertStringIncludes(await ask(server, place, TASK), "Applied edit to made.txt");
      assertEquals(await Deno.readTextFile(join(place.work, "made.txt")), "made by an edit\n");
      assertEquals(server.warnings, []);
    }),
});
