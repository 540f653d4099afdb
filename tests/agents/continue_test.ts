import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { fromNpm } from "../packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { checkCommands, configuration, type Place, run, withAgent } from "./agent.ts";
import { commandScript, FINISHED, GREETING, type ScriptedServer, TASK } from "./scripted_model.ts";

/* Continue's command `cn` over /v1/chat/completions. */

const PACKAGE = "@continuedev/cli@1.5.47";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;

/** Runs one turn of `cn`, which may use every tool. */
async function ask(server: ScriptedServer, place: Place, ...args: string[]): Promise<string> {
  const config = join(place.home, "config.yaml");
  await Deno.writeTextFile(config, await configuration("Continue", server));
  const program = join(folder!, "node_modules/@continuedev/cli/dist/cn.js");
  const settings = { CONTINUE_GLOBAL_DIR: place.home, CONTINUE_TELEMETRY_ENABLED: "0" };
  return await run("node", [program, "--config", config, "--auto", "--print", ...args], place, settings);
}

fullTier.test({
  name: `Continue: answers, runs commands and continues a conversation${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(() => commandScript("Bash", "command"), async (place, server) => {
      assertEquals((await ask(server, place, "Say hello")).trim(), GREETING);
      assertEquals((await ask(server, place, TASK)).trim(), FINISHED);
      await checkCommands(place);
      assertEquals((await ask(server, place, "--resume", "Say hello")).trim(), GREETING);
      assertEquals(server.warnings, []);
    }),
});
