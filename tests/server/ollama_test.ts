import { assertEquals } from "@std/assert";
import { createApp } from "../../routes/app.ts";
import { tryJson } from "../../engine/mod.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { fullTier } from "../../testing/tier.ts";

/* Ollama's API with the demo model, through everything but the network. */

type Fields = Record<string, unknown>;
type Call = { readonly name: string; readonly arguments: string };

const SCHEMA = {
  type: "object",
  properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 1, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "who", parameters: SCHEMA } }];

/** Each case: fields of Ollama's request, and the same in OpenAI's. */
const FORMS: Record<string, [Fields, Fields]> = {
  text: [{}, {}],
  json: [{ format: "json" }, { response_format: { type: "json_object" } }],
  schema: [{ format: SCHEMA }, {
    response_format: { type: "json_schema", json_schema: { name: "who", schema: SCHEMA } },
  }],
  tools: [{ tools }, { tools }],
  "tools and schema": [{ tools, format: SCHEMA }, {
    tools,
    response_format: { type: "json_schema", json_schema: { name: "who", schema: SCHEMA } },
  }],
};
const SAMPLING: Record<string, [Fields, Fields]> = {
  greedy: [{ temperature: 0 }, { temperature: 0 }],
  seeded: [{ seed: 7, top_k: 40, top_p: 0.9, min_p: 0.05 }, { seed: 7, top_k: 40, top_p: 0.9, min_p: 0.05 }],
  penalties: [
    { seed: 1, repeat_penalty: 1.3, presence_penalty: 0.5, frequency_penalty: 0.2, repeat_last_n: -1 },
    { seed: 1, repetition_penalty: 1.3, presence_penalty: 0.5, frequency_penalty: 0.2 },
  ],
  "no penalties": [{ seed: 1, repeat_penalty: 1.3, repeat_last_n: 0 }, { seed: 1 }],
  stop: [{ temperature: 0, stop: ["e", "y"] }, { temperature: 0, stop: ["e", "y"] }],
};
const CONVERSATIONS: Record<string, Fields[]> = {
  question: [{ role: "user", content: "Who are you?" }],
  history: [
    { role: "system", content: "Be brief" },
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "Who are you?" },
  ],
};

fullTier.test("Ollama: answers as /v1/chat/completions does with the same settings", async () => {
  const { engine } = await loadEngine({ model: "models/demo.gguf", parallel: 4 });
  const app = createApp(engine);
  const post = async (path: string, body: Fields) => {
    const headers = { "content-type": "application/json" };
    return await (await app.request(path, { method: "POST", headers, body: JSON.stringify(body) })).text();
  };
  try {
    for (const [form, [ourForm, theirForm]] of Object.entries(FORMS)) {
      for (const [sampling, [options, theirs]] of Object.entries(SAMPLING)) {
        for (const [conversation, messages] of Object.entries(CONVERSATIONS)) {
          const what = `${form}, ${sampling}, ${conversation}`;
          const body = { messages, ...ourForm, options: { num_predict: 60, ...options } };
          const whole = JSON.parse(await post("/api/chat", { ...body, stream: false }));
          const lines = (await post("/api/chat", body)).trimEnd().split("\n").map((line) => JSON.parse(line));
          const { choices: [choice], usage } = JSON.parse(
            await post("/v1/chat/completions", { messages, max_tokens: 60, ...theirForm, ...theirs }),
          );
          const { content, tool_calls = [] } = choice.message;
          assertEquals(whole.message.content, content ?? "", what);
          assertEquals(lines.map(({ message }) => message.content).join(""), content ?? "", what);
          // An answer omits a call that the token limit truncates.
          const calls = tool_calls.flatMap(({ function: { name, arguments: text } }: { function: Call }) => {
            const given = tryJson(text);
            return given ? [{ function: { name, arguments: given } }] : [];
          });
          assertEquals(whole.message.tool_calls ?? [], calls, what);
          const reason = choice.finish_reason === "length" ? "length" : "stop";
          for (const end of [whole, lines.at(-1)]) {
            assertEquals([end.done, end.done_reason], [true, reason], what);
            assertEquals([end.prompt_eval_count, end.eval_count], [
              usage.prompt_tokens,
              usage.completion_tokens,
            ], what);
          }
        }
      }
    }
  } finally {
    await engine.close();
  }
});
