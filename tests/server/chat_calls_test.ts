import { assert, assertEquals } from "@std/assert";
import { Ajv2020 } from "ajv/dist/2020.js";
import { put, type Read } from "../../engine/chat/testing.ts";
import { FORMAT_CASES } from "../../engine/chat/formats/testing.ts";
import { loadEngine } from "../../engine/load/load.ts";
import type { ChatPart, ChatRequest, Engine } from "../../engine/mod.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { everyNth } from "../../testing/tier.ts";

/*
 * Chats with the kernels, the grammar library and random weights, in every call format, concurrently. Random weights are the hardest test:
 * they choose any token that a mask allows.
 */

const TOOLS = [
  {
    name: "pick",
    parameters: {
      type: "object",
      properties: {
        count: { type: "integer", minimum: 0, maximum: 99 },
        mode: { enum: ["fast", "slow"] },
        sure: { type: "boolean" },
        tag: { type: "string", maxLength: 8 },
      },
      required: ["count", "mode"],
      additionalProperties: false,
    },
  },
  { name: "now" },
];
const CONTENT = {
  type: "object",
  properties: { ok: { type: "boolean" }, n: { type: "integer", minimum: 0, maximum: 9 } },
  required: ["ok", "n"],
  additionalProperties: false,
};
const BUDGET = 12;

const ajv = new Ajv2020({ strict: false });
const isContent = ajv.compile(CONTENT);
const isPick = ajv.compile(TOOLS[0].parameters!);

interface Answer extends Read {
  readonly reason: string;
  readonly thinkingTokens: number;
}

async function answer(engine: Engine, request: Partial<ChatRequest>, seed: number): Promise<Answer> {
  const messages = [{ role: "user", content: `How is the weather, ${seed}?` }];
  const { prompt, constraint, markers, thinking, reader } = engine.chatForm.plan({
    messages,
    tools: TOOLS,
    thinkingBudget: BUDGET,
    ...request,
  });
  const read = reader();
  const parts: ChatPart[] = [];
  const events = engine.submit({ prompt, constraint, markers, thinking, maxTokens: 300, sampling: { seed } });
  for await (const event of events) {
    if (event.type === "token" && event.marker) parts.push(...read.marker(event.token));
    else if (event.type === "token" || event.type === "text") parts.push(...read.text(event.text));
    else if (event.type === "finish") {
      parts.push(...read.text(event.text), ...read.end());
      return { ...put(parts), reason: event.reason, thinkingTokens: event.usage.thinkingTokens ?? 0 };
    }
  }
  throw new Error("No finish");
}

function check({ content, calls, reason, thinkingTokens }: Answer, request: Partial<ChatRequest>): void {
  assert(thinkingTokens <= BUDGET + 4, `${thinkingTokens} tokens of thinking`); // thinking ends after a whole character
  if (reason !== "stop") return assertEquals(reason, "length");
  for (const { name, arguments: args } of calls) {
    const isValid = name === "now" ? args === "{}" : name === "pick" && isPick(JSON.parse(args));
    assert(isValid, `${name} ${args}`);
  }
  if (request.toolChoice === "required") assert(calls.length > 0 && content === "", content);
  if (typeof request.toolChoice === "object") assertEquals(calls.map(({ name }) => name), ["pick"]);
  if (request.constraint && calls.length === 0) assert(isContent(JSON.parse(content)), content);
}

for (const { title, parts: { template, control = [], userDefined = [] } } of everyNth(3, FORMAT_CASES)) {
  const marks = [...control, ...userDefined].filter((text) => text !== "<|endoftext|>");
  if (marks.length > 100) continue; // Gemma 3 and Llama 3.2 have hundreds of tokens that this test does not need
  Deno.test(`${title}: every call names a tool and has valid arguments with random weights`, async () => {
    const model = await Deno.makeTempFile({ suffix: ".gguf" });
    const chat = { template: template!, marks };
    await Deno.writeFile(
      model,
      synthesize({ architecture: "llama", seed: 5, types: ["Q8_0"], layers: 1, chat }),
    );
    const { engine } = await loadEngine({ model, threads: 2, contextLength: 2048, parallel: 6 });
    try {
      const constraint = { kind: "json_schema", schema: CONTENT } as const;
      const requests: Partial<ChatRequest>[] = [
        { toolChoice: "required" },
        { toolChoice: "required", parallelToolCalls: false },
        { toolChoice: { name: "pick" } },
        { constraint },
        { constraint, tools: [] },
        {},
      ];
      const answers = await Promise.all(requests.map((request, i) => answer(engine, request, i)));
      for (const [i, read] of answers.entries()) check(read, requests[i]);
      // Thinking is bounded only if its markers are tokens: ThinkingBounds does not count markers spelled in other tokens.
      for (const { reason, reasoning } of [answers[2], answers[4]]) {
        if (engine.chatForm.markers.size > 0 || reasoning === "") assertEquals(reason, "stop");
      }
      // A seed gives the same answer alone and concurrent.
      assertEquals(await answer(engine, requests[2], 2), answers[2]);
    } finally {
      await engine.close();
      await Deno.remove(model);
    }
  });
}
