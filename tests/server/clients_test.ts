import { assertEquals } from "@std/assert";
import { inputLimits } from "../../jobs/check.ts";
import { BatchService } from "../../jobs/service/service.ts";
import { execute } from "../../routes/execute.ts";
import { GENERATION_URLS } from "../../routes/generations.ts";
import { serveHttp } from "../../routes/serve.ts";
import { withChatModel } from "../../testing/chat_model.ts";
import { ANTHROPIC_CALLS } from "./clients/anthropic.ts";
import type { Call, Served } from "./clients/calls.ts";
import { LANGCHAIN_CALLS } from "./clients/langchain.ts";
import { OLLAMA_CALLS } from "./clients/ollama.ts";
import { OPENAI_CALLS } from "./clients/openai.ts";
import { CLIENT_PROGRAMS, runProgram } from "./clients/programs.ts";
import { fullTier } from "../../testing/tier.ts";

/*
 * Unmodified clients over every endpoint: one table of calls to one server. The model has random weights, so only constraints determine
 * the format of its answers.
 */

const TABLE: Record<string, readonly Call[]> = {
  "openai (npm)": OPENAI_CALLS,
  "@anthropic-ai/sdk (npm)": ANTHROPIC_CALLS,
  "ollama (npm)": OLLAMA_CALLS,
  "@langchain/openai (npm)": LANGCHAIN_CALLS,
};

for (const [client, calls] of Object.entries(TABLE)) {
  Deno.test(`clients: ${client} works unmodified`, async (t) => {
    await served(async (server) => {
      for (const call of calls) await t.step(call.name, () => call.run(server));
    });
  });
}

for (const program of CLIENT_PROGRAMS) {
  fullTier.test({
    name: `clients: ${program.clients}`,
    ignore: !program.isThere(),
    fn: async (t) => {
      await served(async (server) => {
        for (const { call, error } of await runProgram(program, server)) {
          await t.step(call, () => {
            if (error !== null) throw new Error(error);
          });
        }
      });
    },
  });
}

async function served(test: (server: Served) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempDir({ prefix: "clients-" });
  const unforeseen: unknown[] = [];
  const report = (error: unknown) => unforeseen.push(error);
  try {
    await withChatModel("from the prompt", async ({ engine }) => {
      const batches = await BatchService.open({
        path,
        parallel: 4,
        lineLimits: inputLimits(GENERATION_URLS),
        settings: { model: engine.model.id },
        execute: (request) => execute(engine, request),
        report,
      });
      const server = serveHttp(engine, { signals: false, batches, onError: report });
      try {
        await test({ base: `http://127.0.0.1:${server.port}`, model: engine.model.id });
      } finally {
        await server.shutdown(0);
      }
    });
  } finally {
    await Deno.remove(path, { recursive: true });
  }
  assertEquals(unforeseen, []);
}
