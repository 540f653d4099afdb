import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { decodeBase64 } from "@std/encoding/base64.js";
import { join } from "@std/path";
import { fromNpm } from "../packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { checkCommands, configuration, exported, PIXEL, type Place, run, withAgent } from "./agent.ts";
import {
  commandScript,
  FINISHED,
  GREETING,
  type ScriptedServer,
  TASK,
  toolScript,
} from "./scripted_model.ts";

/* Claude Code over /v1/messages. */

const PACKAGE = "@anthropic-ai/claude-code@2.1.332";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;

/** Runs one turn of Claude Code, a new conversation. */
async function ask(server: ScriptedServer, place: Place, ...args: string[]): Promise<string> {
  const settings = exported(await configuration("Claude Code", server));
  const program = join(folder!, "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs");
  return await run("node", [program, "--print", ...args], place, {
    CLAUDE_CONFIG_DIR: place.home,
    ...settings,
  });
}

fullTier.test({
  name: `Claude Code: answers, runs commands and continues a conversation${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(() => commandScript("Bash", "command", { description: "Makes" }), async (place, server) => {
      assertEquals(await ask(server, place, "Say hello"), `${GREETING}\n`);
      assertEquals(await ask(server, place, "--allowedTools=Bash", TASK), `${FINISHED}\n`);
      await checkCommands(place);
      assertEquals(await ask(server, place, "--continue", "Say hello"), `${GREETING}\n`);
      assertEquals(server.warnings, []);
    }),
});

fullTier.test({
  name: `Claude Code: writes a file${note}`,
  ignore: !folder,
  fn: async () => {
    const write = (work: string) =>
      toolScript({ name: "Write", args: { file_path: join(work, "made.txt"), content: "made by a tool" } });
    await withAgent(write, async (place, server) => {
      assertEquals(await ask(server, place, "--permission-mode", "acceptEdits", TASK), `${FINISHED}\n`);
      assertEquals(await Deno.readTextFile(join(place.work, "made.txt")), "made by a tool");
    });
  },
});

fullTier.test({
  name: `Claude Code: a second conversation reuses the shared prompt${note}`,
  ignore: !folder,
  fn: () =>
    withAgent(() => () => GREETING, async (place, server) => {
      for (const question of ["Who are you?", "What can you do?"]) await ask(server, place, question);
      const [first, second] = server.prompts.map(({ tokens }) => tokens);
      const shared = second.findIndex((token, i) => token !== first[i]);
      const cached = server.log.at(-1)!.cached_tokens!;
      const figures = `${cached} cached tokens, ${shared} shared ones, ${second.length} in the prompt`;
      // deno-lint-ignore no-console -- a figure for docs/AGENTS.md
      console.log(figures);
      assert(cached >= 0.95 * shared && shared > 8000, figures);
    }),
});

fullTier.test({
  name: `Claude Code: goes on after a tool has returned an image${note}`,
  ignore: !folder,
  fn: async () => {
    const look = (work: string) => toolScript({ name: "Read", args: { file_path: join(work, "a.png") } });
    await withAgent(look, async (place, server) => {
      await Deno.writeFile(join(place.work, "a.png"), decodeBase64(PIXEL));
      assertEquals(await ask(server, place, TASK), `${FINISHED}\n`);
      assertStringIncludes(server.prompts.at(-1)!.text, "[image left out");
    });
  },
});
