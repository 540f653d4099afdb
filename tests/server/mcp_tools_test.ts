/** Tools of MCP servers from npm, whose schemas have many keywords that grammars rarely support. */

import { assert, assertEquals } from "@std/assert";
import { FORMAT_CASES } from "../../engine/chat/formats/testing.ts";
import { testModel, USER } from "../../engine/chat/testing.ts";
import type { Tool } from "../../engine/chat/types.ts";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import { fromNpm } from "../packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";
import { SERVERS, toolsOf } from "./mcp_servers.ts";
import { askForCalls, noCalls } from "./random_calls.ts";

/** One model of each call format. */
const MODELS = [...new Map(FORMAT_CASES.map((one) => [one.format, one])).values()];

const lists = new Map<string, readonly Tool[]>();

for (const [i, server] of SERVERS.entries()) {
  const folder = isFullTier ? await fromNpm(server.npm) : undefined;
  const name = `tools of ${server.name}: no request is refused, and calls are valid or loosened`;
  const ignore = folder === undefined;
  fullTier.test(
    { name: ignore ? `${name} (skipped: npm cannot install ${server.npm})` : name, ignore },
    async () => {
      const tools = await toolsOf(server, folder!);
      assert(tools.length > 0);
      lists.set(server.name, tools);
      const figures = noCalls();
      const model = testModel({});
      for (const tool of tools) {
        await askForCalls(model, [tool], { choices: ["auto", "required"], answers: 1, seed: i }, figures);
      }
      const both = { choices: ["auto", "required", { name: tools[0].name }] as const, answers: 5, seed: i };
      await askForCalls(model, tools, both, figures);
      assertEquals(figures.refused, []);
      assertEquals(figures.invalid, []);
      assert(figures.calls > tools.length, `${figures.calls} calls`);
    },
  );
}

fullTier.test("tools of MCP servers: every call format accepts the tools of all servers together", async () => {
  const all = new Map([...lists.values()].flat().map((tool) => [tool.name, tool]));
  const tools = [...all.values()];
  for (const { format, model } of MODELS) {
    const { form, tokenizer } = model();
    const grammars = createGrammars(tokenizer, form.markers);
    for (const toolChoice of tools.length > 0 ? ["auto", "required"] as const : []) {
      const { constraint } = form.plan({ messages: USER, tools, toolChoice });
      await grammars.compile(constraint!).catch((error) => {
        throw new Error(`${format}, ${toolChoice}: ${error.message}`);
      });
    }
    grammars.close();
  }
});
