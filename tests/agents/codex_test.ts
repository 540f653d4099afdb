import { assertEquals, assertStringIncludes } from "@std/assert";
import { decodeBase64 } from "@std/encoding/base64.js";
import { fromFileUrl, join } from "@std/path";
import { fromNpm } from "../packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { checkCommands, configuration, PIXEL, type Place, run, withAgent } from "./agent.ts";
import {
  commandScript,
  FINISHED,
  GREETING,
  type ScriptedServer,
  TASK,
  toolScript,
} from "./scripted_model.ts";

/* Codex over /v1/responses. */

const PACKAGE = "@openai/codex@0.171.0";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;
const PROGRAM = `${folder}/node_modules/@openai/codex/bin/codex.js`;
const FLAGS = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
const MCP_SERVER = fromFileUrl(new URL("mcp_server.js", import.meta.url));

/** Runs one turn of Codex, with an MCP server. */
async function ask(server: ScriptedServer, place: Place, ...args: string[]): Promise<string> {
  const probe = `\n[mcp_servers.probe]\ncommand = "node"\nargs = [${JSON.stringify(MCP_SERVER)}]\n`;
  await Deno.writeTextFile(join(place.home, "config.toml"), await configuration("Codex", server) + probe);
  return await run("node", [PROGRAM, "exec", ...FLAGS, ...args], place, { CODEX_HOME: place.home });
}

const commands = () => commandScript("exec_command", "cmd");

fullTier.test({
  name: `Codex: answers, runs commands and continues a conversation${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(commands, async (place, server) => {
      assertEquals(await ask(server, place, "Say hello"), `${GREETING}\n`);
      assertEquals(await ask(server, place, "--config=model_reasoning_effort=high", TASK), `${FINISHED}\n`);
      await checkCommands(place);
      assertEquals(await ask(server, place, "resume", "--last", "Say hello"), `${GREETING}\n`);
      const dropped = 'The server cannot run tools of the type "web_search" and leaves them out of prompts';
      assertEquals([...new Set(server.warnings)], [dropped]);
    }),
});

fullTier.test({
  name: `Codex: calls a tool of an MCP server${note}`,
  ignore: !folder,
  fn: async () => {
    const lookup = () => toolScript({ name: "mcp__probe__lookup", args: { key: "k7" } });
    await withAgent(lookup, async (place, server) => {
      assertEquals(await ask(server, place, TASK), `${FINISHED}\n`);
      assertStringIncludes(server.prompts.at(-1)!.text, "found k7");
    });
  },
});

fullTier.test({
  name: `Codex: takes the server for Ollama with --oss${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(commands, async (place, server) => {
      const args = [
        PROGRAM,
        "exec",
        "--oss",
        "--local-provider",
        "ollama",
        "--model",
        server.model,
        ...FLAGS,
        TASK,
      ];
      const settings = { CODEX_HOME: place.home, CODEX_OSS_BASE_URL: `http://127.0.0.1:${server.port}/v1` };
      assertEquals(await run("node", args, place, settings), `${FINISHED}\n`);
      await checkCommands(place);
    }),
});

fullTier.test({
  name: `Codex: goes on after a tool has returned an image${note}`,
  ignore: !folder,
  fn: async () => {
    const look = (work: string) => toolScript({ name: "view_image", args: { path: join(work, "a.png") } });
    await withAgent(look, async (place, server) => {
      await Deno.writeFile(join(place.work, "a.png"), decodeBase64(PIXEL));
      assertEquals(await ask(server, place, TASK), `${FINISHED}\n`);
      assertStringIncludes(server.prompts.at(-1)!.text, "[image left out");
    });
  },
});
