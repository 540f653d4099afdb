import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { fromNpm } from "../../testing/packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { configuration, type Place, run, withAgent } from "./agent.ts";
import { FINISHED, GREETING, type ScriptedServer, TASK, toolScript } from "./scripted_model.ts";

/* Continue's command `cn` over /v1/chat/completions. */

const PACKAGE = "@continuedev/cli@1.5.47";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;

/** Runs one turn of `cn`, which may use every tool. */
async function ask(server: ScriptedServer, place: Place, prompt: string): Promise<string> {
  const config = join(place.home, "config.yaml");
  await Deno.writeTextFile(config, await configuration("Continue", server));
  const program = join(folder!, "node_modules/@continuedev/cli/dist/cn.js");
  const settings = { CONTINUE_GLOBAL_DIR: place.home, CONTINUE_TELEMETRY_ENABLED: "0" };
  return await run("node", [program, "--config", config, "--auto", "--print", prompt], place, settings);
}

fullTier.test({
  name: `Continue: answers and runs a command${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(
      () => toolScript({ name: "Bash", args: { command: "echo made by a tool > made.txt" } }),
      async (place, server) => {
        assertEquals((await ask(server, place, "Say hello")).trim(), GREETING);
        assertEquals((await ask(server, place, TASK)).trim(), FINISHED);
        assertEquals(await Deno.readTextFile(join(place.work, "made.txt")), "made by a tool\n");
        assertEquals(server.warnings, []);
      },
    ),
});
