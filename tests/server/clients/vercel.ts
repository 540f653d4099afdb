import type { createAnthropic } from "@ai-sdk/anthropic";
import type { createOpenAI } from "@ai-sdk/openai";
import type { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { assert, assertEquals, assertRejects } from "@std/assert";
import type * as Ai from "ai";
import { z } from "zod";
import { type Call, isMood, QUESTION, type Served } from "./calls.ts";

/* Calls of Vercel's npm `ai`. Each version is a program, because it reads the machine's name and the environment. */

/** A version of `ai`, with its providers. */
export interface Sdk {
  readonly ai: typeof Ai;
  readonly createAnthropic: typeof createAnthropic;
  readonly createOpenAI: typeof createOpenAI;
  readonly createOpenAICompatible: typeof createOpenAICompatible;
}

let sdk: Sdk;

const Mood = z.object({ mood: z.enum(["calm", "wild"]), sure: z.boolean() });

interface Provider {
  readonly name: string;
  model(served: Served): Ai.LanguageModel;
  /** Provider options for no thinking and one call at a time; for Responses also without stored items. */
  readonly plainly: Record<string, Record<string, Ai.JSONValue>>;
}

const apiKey = "none";
const openai = ({ base }: Served) => sdk.createOpenAI({ baseURL: `${base}/v1`, apiKey });
const compatible = ({ base }: Served) =>
  sdk.createOpenAICompatible({
    name: "compy",
    baseURL: `${base}/v1`,
    supportsStructuredOutputs: true,
    includeUsage: true,
  });

const PROVIDERS: readonly Provider[] = [
  {
    name: "@ai-sdk/openai, responses",
    model: (served) => openai(served).responses(served.model),
    plainly: {
      openai: { reasoningEffort: "none", forceReasoning: true, parallelToolCalls: false },
    },
  },
  {
    name: "@ai-sdk/openai, chat",
    model: (served) => openai(served).chat(served.model),
    plainly: { openai: { reasoningEffort: "none", forceReasoning: true, parallelToolCalls: false } },
  },
  {
    name: "@ai-sdk/openai-compatible",
    model: (served) => compatible(served).chatModel(served.model),
    plainly: { compy: { reasoningEffort: "none", parallel_tool_calls: false } },
  },
  {
    name: "@ai-sdk/anthropic",
    model: ({ base, model }) => sdk.createAnthropic({ baseURL: `${base}/v1`, apiKey })(model),
    plainly: { anthropic: { disableParallelToolUse: true } },
  },
];

/** Whether an answer has thinking. Random weights may end it at once, so several answers are requested. */
async function hasThought(ask: () => Promise<string | undefined>): Promise<boolean> {
  for (let i = 0; i < 4; i++) if (await ask()) return true;
  return false;
}

function callsOf({ name, model, plainly }: Provider): Call[] {
  const request = (served: Served) => ({
    model: model(served),
    prompt: QUESTION,
    maxRetries: 0,
    providerOptions: plainly,
  });
  return [
    {
      name: `${name}: text, whole and streamed`,
      async run(served) {
        // The SDK omits the temperature for models that it takes for reasoning models.
        const asked = {
          ...request(served),
          providerOptions: undefined,
          system: "Be kind",
          maxOutputTokens: 32,
          temperature: 0,
        };
        const whole = await sdk.ai.generateText(asked);
        const streamed = sdk.ai.streamText({ ...asked, onError() {} });
        assertEquals(await streamed.text, whole.text);
        assertEquals(await streamed.finishReason, whole.finishReason);
        const [{ outputTokens }, usage] = [await streamed.totalUsage, whole.totalUsage];
        assertEquals(outputTokens, usage.outputTokens);
        assert(usage.inputTokens! > 0 && usage.outputTokens! > 0);
      },
    },
    {
      name: `${name}: thinking, whole and streamed`,
      async run(served) {
        const options: Provider["plainly"] = {
          openai: { reasoningSummary: "auto", forceReasoning: true },
          anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
        };
        const asked = { ...request(served), providerOptions: options, maxOutputTokens: 24 };
        // The SDK's provider for OpenAI's chat ignores thinking.
        const isTold = !name.endsWith("chat");
        const whole = async () => (await sdk.ai.generateText(asked)).reasoningText;
        const streamed = async () => await sdk.ai.streamText({ ...asked, onError() {} }).reasoningText;
        assertEquals([await hasThought(whole), await hasThought(streamed)], [isTold, isTold]);
      },
    },
    {
      name: `${name}: objects, whole and streamed`,
      async run(served) {
        const asked = { ...request(served), schema: Mood, temperature: 0 };
        const { object } = await sdk.ai.generateObject(asked);
        assert(isMood(object));
        const streamed = sdk.ai.streamObject({ ...asked, onError() {} });
        await Array.fromAsync(streamed.partialObjectStream);
        assert(isMood(await streamed.object));
      },
    },
    {
      name: `${name}: tools in a loop, whole and streamed`,
      async run(served) {
        const given: unknown[] = [];
        const tools = {
          set_mood: sdk.ai.tool({
            description: "Sets the mood",
            inputSchema: Mood,
            execute: (args) => {
              given.push(args);
              return Promise.resolve("done");
            },
          }),
        };
        const asked = {
          ...request(served),
          tools,
          toolChoice: "required" as const,
          stopWhen: sdk.ai.stepCountIs(2),
          maxOutputTokens: 600,
          temperature: 0,
        };
        const whole = await sdk.ai.generateText(asked);
        assertEquals(whole.steps.length, 2);
        const streamed = sdk.ai.streamText({ ...asked, onError() {} });
        assertEquals((await streamed.steps).length, 2);
        assert(given.length === 4 && given.every(isMood));
      },
    },
    {
      name: `${name}: a refusal`,
      async run(served) {
        const asked = { ...request(served), model: model({ ...served, model: "none" }) };
        const error = await assertRejects(() => sdk.ai.generateText(asked), sdk.ai.APICallError);
        assertEquals(error.statusCode, 404);
      },
    },
  ];
}

const completions: Call[] = [
  ["@ai-sdk/openai", (served: Served) => openai(served).completion(served.model)] as const,
  [
    "@ai-sdk/openai-compatible",
    (served: Served) => compatible(served).completionModel(served.model),
  ] as const,
].map(([name, model]) => ({
  name: `${name}: completions, whole and streamed`,
  async run(served) {
    const asked = {
      model: model(served),
      prompt: "Once",
      maxOutputTokens: 16,
      temperature: 0,
      maxRetries: 0,
    };
    const whole = await sdk.ai.generateText(asked);
    assertEquals(await sdk.ai.streamText({ ...asked, onError() {} }).text, whole.text);
  },
}));

const embeddings: Call[] = [
  ["@ai-sdk/openai", (served: Served) => openai(served).embedding(served.model)] as const,
  [
    "@ai-sdk/openai-compatible",
    (served: Served) => compatible(served).embeddingModel(served.model),
  ] as const,
].map(([name, model]) => ({
  name: `${name}: embeddings`,
  async run(served) {
    const asked = { model: model(served), maxRetries: 0 };
    const { embeddings, usage } = await sdk.ai.embedMany({ ...asked, values: [QUESTION, "Hi"] });
    const { embedding } = await sdk.ai.embed({ ...asked, value: QUESTION });
    assertEquals(embeddings.length, 2);
    assert(sdk.ai.cosineSimilarity(embedding, embeddings[0]) > 0.999999);
    assert(usage.tokens > 0);
  },
}));

const CALLS: readonly Call[] = [...PROVIDERS.flatMap(callsOf), ...completions, ...embeddings];

/**
 * Makes all calls to the server that the program's arguments name. Prints one outcome per line; programs.ts reads
 * these lines.
 */
export async function makeCalls(version: Sdk): Promise<void> {
  sdk = version;
  (globalThis as { AI_SDK_LOG_WARNINGS?: boolean }).AI_SDK_LOG_WARNINGS = false;
  const [base, model] = Deno.args;
  for (const { name, run } of CALLS) {
    let error: string | null = null;
    try {
      await run({ base, model });
    } catch (failure) {
      error = String((failure as Error).stack ?? failure);
    }
    // deno-lint-ignore no-console -- what programs.ts reads
    console.log(JSON.stringify({ call: name, error }));
  }
}
