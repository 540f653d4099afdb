import { assertEquals, assertStringIncludes } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { fromNpm } from "../../testing/packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { configuration, type Place, run, withAgent } from "./agent.ts";
import { FINISHED, GREETING, type ScriptedServer, TASK, toolScript } from "./scripted_model.ts";

/* Codex over /v1/responses. */

const PACKAGE = "@openai/codex@0.171.0";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;
const MCP_SERVER = fromFileUrl(new URL("mcp_server.js", import.meta.url));

/** Runs one turn of Codex, with an MCP server. */
async function ask(server: ScriptedServer, place: Place, prompt: string): Promise<string> {
  const probe = `\n[mcp_servers.probe]\ncommand = "node"\nargs = [${JSON.stringify(MCP_SERVER)}]\n`;
  await Deno.writeTextFile(join(place.home, "config.toml"), await configuration("Codex", server) + probe);
  const program = join(folder!, "node_modules/@openai/codex/bin/codex.js");
  const flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
  return await run("node", [program, "exec", ...flags, prompt], place, { CODEX_HOME: place.home });
}

fullTier.test({
  name: `Codex: answers and runs a command${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(
      () => toolScript({ name: "exec_command", args: { cmd: "echo made by a tool > made.txt" } }),
      async (place, server) => {
        assertEquals(await ask(server, place, "Say hello"), `${GREETING}\n`);
        assertEquals(await ask(server, place, TASK), `${FINISHED}\n`);
        assertEquals(await Deno.readTextFile(join(place.work, "made.txt")), "made by a tool\n");
        const dropped =
          'Tools of the type "web_search" are left out of requests: this server cannot run them';
        assertEquals([...new Set(server.warnings)], [dropped]);
      },
    ),
});

fullTier.test({
  name: `Codex: calls a tool of an MCP server${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(
      () => toolScript({ name: "mcp__probe__lookup", args: { key: "k7" } }),
      async (place, server) => {
        assertEquals(await ask(server, place, TASK), `${FINISHED}\n`);
        assertStringIncludes(server.prompts.at(-1)!.text, "found k7");
      },
    ),
});
