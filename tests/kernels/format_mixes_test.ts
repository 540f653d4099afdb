import { assert, assertEquals } from "@std/assert";
import OpenAI from "openai";
import { FORMAT_CASES } from "../../engine/chat/formats/testing.ts";
import { loadEngine } from "../../engine/load/load.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import { createApp } from "../../routes/app.ts";
import { execute } from "../../routes/execute.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";
import {
  askBothWays,
  judgeCalls,
  judgeJson,
  type Said,
  saidWhole,
  type Tool,
  withoutIds,
} from "../../testing/tool_calls.ts";

/*
 * Each tool-call format with random weights, through everything except the network, with several unrelated features at
 * once. The answer must be the same whole, streamed and as a batch line, and must satisfy all its constraints.
 */

type Request = Record<string, unknown>;

const schema = {
  type: "object",
  properties: {
    count: { type: "integer", minimum: 0, maximum: 99 },
    mode: { enum: ["fast", "slow", "日本"] },
    tag: { type: "string", maxLength: 8 },
  },
  required: ["count", "mode"],
  additionalProperties: false,
};
const tools: Tool[] = [
  { type: "function", function: { name: "pick", parameters: schema } },
  { type: "function", function: { name: "now" } },
];
const response_format = { type: "json_schema", json_schema: { name: "picked", schema } };
const messages = [{ role: "user" as const, content: "Weather in Köln?" }];
const begun = [...messages, { role: "assistant" as const, content: "In Köln it is" }];
const choices = ["<think>x</think>y", "<tool_call>{}</tool_call>", "</think>", "é中👍"];

const short = { thinking_budget_tokens: 6 };
// The bias makes the end more probable than another call.
const required = { tools, tool_choice: "required", logit_bias: { 256: 4 }, ...short };
const samplers = {
  xtc_probability: 0.5,
  xtc_threshold: 0.01,
  typical_p: 0.5,
  top_n_sigma: 1,
  dry_multiplier: 3,
  dry_allowed_length: 0,
  repetition_penalty: 1.5,
  frequency_penalty: 2,
};

const MIXES: readonly Request[] = [
  { ...required, n: 3, stop: [",", "日"] },
  { ...required, n: 2, logprobs: true, top_logprobs: 3, ...samplers },
  { ...required, parallel_tool_calls: false, ignore_eos: true },
  { ...required, max_tokens: 3, n: 2, logprobs: true },
  { response_format, tools, n: 2, stop: ["a", "9"], ...short },
  { response_format, ...samplers, n: 2, ...short },
  { response_format, ignore_eos: true, logprobs: true, ...short },
  { guided_choice: choices, tools, n: 3, ...short },
  { guided_choice: choices.slice(3), max_tokens: 2, logprobs: true, reasoning_effort: "none" },
  { guided_regex: "  [a-z]{1,3}\\n ", n: 2, ...short },
  { messages: begun, tools, max_tokens: 60, n: 2, logit_bias: { 260: 3, 256: 2 } },
  { messages: begun, max_tokens: 60, stop: ["x", "0"], logprobs: true },
];

/** Templates of the first tier: with and without tokens for calls and thinking. */
const FIRST_TIER = ["Qwen3", "a template without marks in the vocabulary"];

/** A model with this format, its routes, and OpenAI's client for them. */
async function withModel(
  { template, control = [], userDefined = [] }: (typeof FORMAT_CASES)[number]["parts"],
  test: (ask: (mix: Request) => Promise<Said[]>) => Promise<void>,
  options: Pick<LoadOptions, "backend"> = {},
): Promise<void> {
  const marks = [...control, ...userDefined].filter((text) => text !== "<|endoftext|>");
  const model = await Deno.makeTempFile({ suffix: ".gguf" });
  const chat = { template: template!, marks };
  await Deno.writeFile(
    model,
    synthesize({ architecture: "llama", seed: 5, types: ["Q8_0"], layers: 1, chat }),
  );
  const { engine } = await loadEngine({ model, threads: 2, contextLength: 2048, parallel: 6, ...options });
  const app = createApp(engine);
  const client = new OpenAI({
    baseURL: "http://127.0.0.1/v1",
    apiKey: "none",
    maxRetries: 0,
    fetch: async (url, init) => await app.request(url as string, init as RequestInit),
  });
  try {
    await test(async (mix) => {
      const body = { model: engine.model.id, messages, max_tokens: 250, seed: 1, ...mix };
      const answers = await askBothWays(client, body as never);
      const line = await execute(engine, { url: "/v1/chat/completions", body });
      const inBatch = (line.body as unknown as OpenAI.ChatCompletion).choices.map(saidWhole);
      assertEquals(inBatch.map(withoutIds), answers.map(withoutIds), "a line of a batch differs");
      return answers;
    });
  } finally {
    await engine.close();
    await Deno.remove(model);
  }
}

function judge(said: Said, mix: Request): void {
  const { content, calls, finish } = said;
  judgeCalls(said, tools);
  if (!mix.tools) assertEquals(calls, []);
  if (mix.tool_choice === "required" && finish !== "length") assert(calls.length > 0, "no call");
  if (finish !== "stop") return;
  if (mix.response_format) judgeJson(content, schema);
  if (mix.guided_choice) assert(choices.includes(content), JSON.stringify(content));
  if (mix.guided_regex) assert(/^ {2}[a-z]{1,3}\n $/.test(content), JSON.stringify(content));
}

async function check(ask: (mix: Request) => Promise<Said[]>, mix: Request): Promise<void> {
  for (const said of await ask(mix)) {
    try {
      judge(said, mix);
    } catch (error) {
      throw new Error(`${JSON.stringify(mix).slice(0, 300)}: ${JSON.stringify(said)}`, { cause: error });
    }
  }
}

for (const { title, format, parts } of FORMAT_CASES) {
  if ((parts.control?.length ?? 0) + (parts.userDefined?.length ?? 0) > 100) continue; // hundreds of tokens that this test does not need
  const tier = FIRST_TIER.includes(title) ? firstTier : fullTier;
  tier.test(`${title}: calls, constraints, thinking and prefill work together with stop texts, samplers, n and logprobs`, async () => {
    await withModel(parts, async (ask) => {
      for (const mix of MIXES) await check(ask, mix);
      if (format !== "harmony") return;
      // Message headers are not part of the answer's text.
      const stop = ["analysis", "final", "commentary", "functions"];
      for (
        const mix of [{ response_format, ...short }, { response_format, reasoning_effort: "none" }, required]
      ) {
        assertEquals((await ask({ ...mix, stop })).map(withoutIds), (await ask(mix)).map(withoutIds));
      }
    });
  });
}

gpuTest(
  "call formats on the GPU: calls, constraints and thinking work together with stop texts, samplers, n and logprobs",
  async () => {
    const { parts } = FORMAT_CASES.find(({ title }) => title === "Qwen3")!;
    await withModel(parts, async (ask) => {
      for (const mix of MIXES.slice(0, 6)) await check(ask, { ...mix, max_tokens: 60 });
    }, { backend: "webgpu" });
  },
);
