import OpenAI from "openai";
import { loadEngine } from "../engine/load/load.ts";
import type { LoadOptions } from "../engine/load/options.ts";
import type { Engine } from "../engine/api/engine.ts";
import { createApp } from "../routes/app.ts";
import { synthesize } from "./synth/synth.ts";

/**
 * A model with random weights that thinks and calls tools: it chooses any token that its grammar allows. Its tokens are
 * bytes and markers, so that the end of a text comes soon.
 */

const MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/** How thinking starts: by the model, or in the prompt. */
export type Thinks = "by itself" | "from the prompt";

function templateOf(thinks: Thinks): string {
  const opened = thinks === "from the prompt" ? "<think>\n" : "";
  return `{% if tools %}{{ tools | tojson }} <tool_call>{"name", "arguments"}</tool_call>{% endif -%}
{% for m in messages %}{{ m.role }}: {{ m.content or "" }}{% for call in m.tool_calls or [] -%}
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|endoftext|>{% endfor -%}
{% if add_generation_prompt %}assistant: {% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}${opened}{% endif %}{% endif %}`;
}

export interface ChatModel {
  readonly engine: Engine;
  /** A client of the server's routes, without a network. */
  readonly client: OpenAI;
}

export async function withChatModel(
  thinks: Thinks,
  test: (model: ChatModel) => Promise<void>,
  { template = templateOf(thinks), ...options }: Partial<LoadOptions> & { readonly template?: string } = {},
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const model = `${folder}/random.gguf`;
  const chat = { template, marks: MARKS };
  const types = ["Q8_0" as const];
  const vocabulary = 258 + MARKS.length;
  try {
    await Deno.writeFile(
      model,
      synthesize({ architecture: "llama", seed: 5, types, layers: 1, vocabulary, chat }),
    );
    const { engine } = await loadEngine({ parallel: 8, contextLength: 2048, ...options, model });
    const app = createApp(engine);
    const client = new OpenAI({
      baseURL: "http://127.0.0.1/v1",
      apiKey: "none",
      maxRetries: 0,
      fetch: async (url, init) => await app.request(url as string, init as RequestInit),
    });
    try {
      await test({ engine, client });
    } finally {
      await engine.close();
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
