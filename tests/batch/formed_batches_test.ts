import { assert, assertEquals } from "@std/assert";
import type OpenAI from "openai";
import { createBatch, linesOf, upload, waitFor } from "../../routes/testing_batches.ts";
import { batch, inFolder, readLines } from "./commands.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { NatsServer, natsServerPath } from "../nats/nats_server.ts";
import { fullTier } from "../../testing/tier.ts";
import { judgeCalls, judgeJson, saidWhole, type Tool } from "../../testing/tool_calls.ts";

/* Batch lines with constraints and calls on the demo model: by the command, over NATS and by the server. */

const CHAT = "/v1/chat/completions";
const schema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const tools: Tool[] = [{ type: "function", function: { name: "greet", parameters: schema } }];
const bad = { type: "object", properties: { a: { type: "no-such-type" } } };

type Judge = (choice: OpenAI.ChatCompletion.Choice) => void;

const json: Judge = ({ message, finish_reason }) => {
  assertEquals(finish_reason, "stop");
  judgeJson(message.content!, schema);
};
const call: Judge = (choice) => {
  assertEquals(choice.finish_reason, "tool_calls");
  judgeCalls(saidWhole(choice), tools);
};
const oneOf = (...texts: string[]): Judge => ({ message }) => assert(texts.includes(message.content!));

/** Bodies of lines, each with a check of its answers or the reason of its refusal. */
const LINES: [body: Record<string, unknown>, judge: Judge | [code: string, param: string]][] = [
  [{ response_format: { type: "json_schema", json_schema: { name: "a", schema } } }, json],
  [{ json_schema: schema, n: 2, temperature: 1, seed: 7 }, json],
  [{ tools, tool_choice: "required", parallel_tool_calls: false }, call],
  [
    { tools, tool_choice: { type: "function", function: { name: "greet" } }, parallel_tool_calls: false },
    call,
  ],
  [{ guided_choice: ["yes", "no"] }, oneOf("yes", "no")],
  [{ grammar: 'root ::= "left" | "right"', reasoning_effort: "none" }, oneOf("left", "right")],
  [{ response_format: { type: "json_schema", json_schema: { name: "a", schema: bad } } }, [
    "invalid_constraint",
    "response_format.json_schema.schema",
  ]],
  [{ tools: [...tools, { type: "function", function: { name: "b", parameters: bad, strict: true } }] }, [
    "invalid_constraint",
    "tools[1].function.parameters",
  ]],
  [{ grammar: "root ::= (" }, ["invalid_constraint", "grammar"]],
  [{ tool_choice: "required" }, ["invalid_value", "tool_choice"]],
];

const lines = LINES.map(([body], i) =>
  JSON.stringify({
    custom_id: `q${i}`,
    method: "POST",
    url: CHAT,
    body: {
      model: "demo",
      messages: [{ role: "user", content: "Who are you?" }],
      temperature: 0,
      max_tokens: 150,
      ...body,
    },
  })
);

interface AnsweredLine {
  custom_id: string;
  response: {
    status_code: number;
    body: OpenAI.ChatCompletion & { error?: { code: string; param: string } };
  };
}

function judge(answered: readonly AnsweredLine[], failed: readonly AnsweredLine[]): void {
  const all = new Map([...answered, ...failed].map(({ custom_id, response }) => [custom_id, response]));
  assertEquals(all.size, LINES.length);
  LINES.forEach(([body, judge], i) => {
    const { status_code, body: answer } = all.get(`q${i}`)!;
    if (Array.isArray(judge)) {
      assertEquals([status_code, answer.error?.code, answer.error?.param], [400, ...judge], `q${i}`);
    } else {
      assertEquals([status_code, answer.choices?.length], [200, body.n ?? 1], JSON.stringify(answer));
      answer.choices.forEach(judge);
    }
  });
}

/** Returns the parts of lines that are equal in every run. */
function lasting(lines: readonly AnsweredLine[]) {
  return lines.map(({ custom_id, response: { body: { choices } } }) => {
    return [
      custom_id,
      choices.map(saidWhole).map(({ content, calls }) => [content, calls.map((c) => c.arguments)]),
    ];
  });
}

fullTier.test("batches: the command and a NATS worker give equal constrained answers and tool calls; only a bad line gets a 400", async () => {
  await inFolder(lines, async (path) => {
    const alone = await batch(["run", path("in.jsonl"), "--out", path("out.jsonl")]).output();
    assertEquals(alone.code, 0, new TextDecoder().decode(alone.stderr));
    const answered = await readLines<AnsweredLine>(path("out.jsonl"));
    judge(answered, await readLines<AnsweredLine>(path("out.errors.jsonl")));
    if (natsServerPath() === undefined) return;

    await using server = await NatsServer.start(["-js"]);
    const worker = batch(["worker", "--nats", server.url, "--threads", "1"]);
    const far = await batch(["run", path("in.jsonl"), "--out", path("far.jsonl"), "--nats", server.url])
      .output();
    worker.kill("SIGINT");
    await worker.output();
    assertEquals(far.code, 0, new TextDecoder().decode(far.stderr));
    judge(
      await readLines<AnsweredLine>(path("far.jsonl")),
      await readLines<AnsweredLine>(path("far.errors.jsonl")),
    );
    assertEquals(lasting(await readLines<AnsweredLine>(path("far.jsonl"))), lasting(answered));
  });
});

Deno.test("batches: the server answers constrained lines and calls, and a bad line gets its own 400", async () => {
  await inFolder(lines, async (path) => {
    await withLiveServer([], async ({ client }) => {
      const { id } = await createBatch(client, await upload(client, lines));
      const ended = await waitFor(client, id, "completed", "failed");
      assertEquals(ended.request_counts, { total: LINES.length, completed: 6, failed: 4 });
      judge(await linesOf(client, ended.output_file_id), await linesOf(client, ended.error_file_id));
    }, path("data"));
  });
});
