import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { fromNpm } from "../packages.ts";
import { thisPlatform } from "../../ffi/find.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { checkCommands, configuration, type Place, run, withAgent } from "./agent.ts";
import { commandScript, FINISHED, GREETING, type ScriptedServer, TASK } from "./scripted_model.ts";

/* opencode over /v1/chat/completions. */

const PACKAGE = "opencode-ai@1.18.33";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;

/** Settings that keep opencode from sending requests to other servers. */
const ALONE = {
  OPENCODE_DISABLE_AUTOUPDATE: "1",
  OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
  OPENCODE_DISABLE_MODELS_FETCH: "1",
  OPENCODE_DISABLE_SHARE: "1",
};

/** Runs one turn of opencode. */
async function ask(server: ScriptedServer, place: Place, ...args: string[]): Promise<string> {
  const settings = join(place.home, ".config/opencode");
  await Deno.mkdir(settings, { recursive: true });
  await Deno.writeTextFile(join(settings, "opencode.json"), await configuration("opencode", server));
  const { os, cpu } = thisPlatform();
  const program = join(folder!, `node_modules/opencode-${os}-${cpu}/bin/opencode`);
  return await run(program, ["run", ...args], place, ALONE);
}

fullTier.test({
  name: `opencode: answers, runs commands and continues a conversation${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(() => commandScript("bash", "command"), async (place, server) => {
      assertEquals((await ask(server, place, "Say hello")).trim(), GREETING);
      assertEquals((await ask(server, place, TASK)).trim(), FINISHED);
      await checkCommands(place);
      assertEquals((await ask(server, place, "--continue", "Say hello")).trim(), GREETING);
      assertEquals(server.warnings, []);
    }),
});
