import { assert, assertEquals } from "@std/assert";
import type OpenAI from "openai";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";

/* A real server with less KV memory than its answers need. */

const CLIENTS = 5;

interface Answers {
  /** Texts by the choice's index. */
  readonly texts: string[];
  readonly reasons: string[];
  readonly usage: { prompt_tokens: number; completion_tokens: number };
}

function requestOf(client: number): OpenAI.ChatCompletionCreateParamsNonStreaming {
  return {
    model: "demo",
    messages: [{ role: "user", content: `Tell me story ${client}` }],
    n: 1 + client % 3,
    seed: client,
    max_tokens: 200,
    stop: client === 4 ? ["never said"] : undefined,
    ...{ ignore_eos: true },
  };
}

async function whole({ client }: LiveServer, i: number): Promise<Answers> {
  const { choices, usage } = await client.chat.completions.create(requestOf(i));
  const texts = choices.map(({ message }) => message.content!);
  return { texts, reasons: choices.map(({ finish_reason }) => finish_reason), usage: counts(usage!) };
}

async function streamed({ client }: LiveServer, i: number): Promise<Answers> {
  const request = { ...requestOf(i), stream: true, stream_options: { include_usage: true } } as const;
  const texts: string[] = [];
  const reasons: string[] = [];
  let usage: OpenAI.CompletionUsage | undefined;
  for await (const chunk of await client.chat.completions.create(request)) {
    for (const { index, delta, finish_reason } of chunk.choices) {
      texts[index] = (texts[index] ?? "") + (delta.content ?? "");
      if (finish_reason) reasons[index] = finish_reason;
    }
    usage = chunk.usage ?? usage;
  }
  return { texts, reasons, usage: counts(usage!) };
}

function counts({ prompt_tokens, completion_tokens }: OpenAI.CompletionUsage): Answers["usage"] {
  return { prompt_tokens, completion_tokens };
}

Deno.test("server: when KV memory runs out, streamed and unstreamed choices equal those of the same request alone", async () => {
  const args = ["--threads", "1", "--ctx", "512", "--parallel", "12", "--kv-mb", "1"];
  await withLiveServer(args, async (server) => {
    const all = Array.from({ length: CLIENTS }, (_, i) => i);
    const wanted: Answers[] = [];
    for (const i of all) wanted.push(await whole(server, i));
    assertEquals(await server.metric("compy_preemptions_total"), 0);
    for (const ask of [whole, streamed]) {
      assertEquals(await Promise.all(all.map((i) => ask(server, i))), wanted);
    }
    assert(await server.metric("compy_preemptions_total") > 0);
    await server.idle();
  });
});
