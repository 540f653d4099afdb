import { assert, assertEquals } from "@std/assert";
import type OpenAI from "openai";
import { execute } from "../../routes/execute.ts";
import { type ChatModel, withChatModel } from "../../testing/chat_model.ts";
import { judgeCalls, judgeJson, type Said, type Tool } from "../../testing/tool_calls.ts";

/*
 * /v1/responses with the kernels, the grammar library and random weights, through everything except the network.
 * Constraints must hold with all other features, and the answer must be the same whole, streamed and as a batch line.
 */

type Request = OpenAI.Responses.ResponseCreateParamsNonStreaming & { stream?: undefined };
type Response = OpenAI.Responses.Response;

const schema = {
  type: "object",
  properties: {
    city: { type: "string", maxLength: 12 },
    days: { type: "array", items: { type: "integer", minimum: 1, maximum: 9 }, maxItems: 3 },
  },
  required: ["city"],
  additionalProperties: false,
};
const tools = ["get_weather", "notes.add-one"].map((name) => ({
  type: "function" as const,
  name,
  parameters: schema,
  strict: true,
}));
/** The tools of the request in the checker's format. */
const chatTools: Tool[] = tools.map(({ type, name, parameters }) => ({
  type,
  function: { name, parameters },
}));
const text = { format: { type: "json_schema" as const, name: "weather", schema } };

function said({ output, status }: Response): Said {
  const calls = output.flatMap((item) =>
    item.type === "function_call" ? { id: item.call_id, name: item.name, arguments: item.arguments } : []
  );
  const reasoning = output.flatMap((item) => {
    if (item.type !== "reasoning") return [];
    return [...item.content ?? [], ...item.summary].map(({ text }) => text);
  });
  const content = output.flatMap((item) => {
    if (item.type !== "message") return [];
    return item.content.map((part) => part.type === "output_text" ? part.text : "");
  });
  const finish = status === "incomplete" ? "length" : calls.length > 0 ? "tool_calls" : "stop";
  return { content: content.join(""), reasoning: reasoning.join(""), calls, finish };
}

/** Returns the response without ids and times. */
function lasting(response: Response) {
  const { output, usage } = response;
  const items = output.map((item) => ({ ...item, id: "", call_id: "" }));
  return { ...said(response), calls: [], items, tokens: [usage?.input_tokens, usage?.output_tokens_details] };
}

/** Asks whole, streamed and as a batch line. Throws if the answers differ. */
async function ask({ client, engine }: ChatModel, body: Record<string, unknown>): Promise<Response> {
  const request = { model: "random", input: "Weather in Köln?", seed: 1, ...body } as Request;
  const whole = await client.responses.create(request);
  let last: Response | undefined;
  const deltas: string[] = [];
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_text.delta") deltas.push(event.delta);
    if (event.type === "response.completed" || event.type === "response.incomplete") last = event.response;
  }
  assertEquals(lasting(last!), lasting(whole), "streamed and whole differ");
  assertEquals(deltas.join(""), said(whole).content);
  const { status, body: line } = await execute(engine, { url: "/v1/responses", body: request });
  assertEquals(status, 200);
  assertEquals(lasting(line as unknown as Response), lasting(whole), "a line of a batch differs");
  return whole;
}

const FORMED: Record<string, unknown>[] = [
  { text },
  { text, tools },
  { text, tools, tool_choice: "none", reasoning: { summary: "auto" } },
  { tools, tool_choice: "required", parallel_tool_calls: false, logit_bias: { 256: 4 } },
  { tools, tool_choice: { type: "function", name: "notes.add-one" }, parallel_tool_calls: false },
  { text, reasoning: { effort: "none" }, temperature: 0 },
  { text, include: ["message.output_text.logprobs"], top_logprobs: 2 },
  { text, max_output_tokens: 20 },
  { tools, tool_choice: "required", max_output_tokens: 40 },
  { max_output_tokens: 30, stop: ["a", "e"] },
];

Deno.test("responses: constraints, tools and thinking hold whole, streamed and in batches", async () => {
  for (const thinks of ["by itself", "from the prompt"] as const) {
    const whole: string[] = [];
    const thoughts: string[] = [];
    await withChatModel(thinks, async (model) => {
      await Promise.all(FORMED.map(async (body) => {
        const response = await ask(model, { max_output_tokens: 300, thinking_budget_tokens: 12, ...body });
        const answer = said(response);
        judgeCalls({ ...answer }, chatTools);
        const { tools, tool_choice, text } = body;
        if (answer.calls.length > 0) assert(tools && tool_choice !== "none", "a call without tools");
        assert(response.usage!.output_tokens_details.reasoning_tokens <= 16);
        if (answer.reasoning !== "") thoughts.push(answer.reasoning);
        if (answer.finish === "length") {
          return assertEquals(response.incomplete_details?.reason, "max_output_tokens");
        }
        whole.push(answer.finish!);
        if (text && answer.calls.length === 0) judgeJson(answer.content, schema);
        if (typeof tool_choice === "object") {
          assertEquals(answer.calls.map(({ name }) => name), ["notes.add-one"]);
        }
      }));
    });
    assert(whole.length >= 5, `${thinks}: ${whole}`);
    // Thinking that the prompt started may end at once.
    if (thinks === "from the prompt") assert(thoughts.length >= 6, `${thoughts.length} thoughts`);
  }
});

Deno.test("responses: log-probabilities cover the text, and a repeated prompt is cached", async () => {
  await withChatModel("from the prompt", async ({ client }) => {
    const request: Request = {
      model: "random",
      instructions: "Be kind. ".repeat(30),
      input: "Weather?",
      text,
      temperature: 0,
      include: ["message.output_text.logprobs"],
    };
    const first = await client.responses.create({ ...request, thinking_budget_tokens: 8 } as Request);
    const message = first.output.find(({ type }) =>
      type === "message"
    ) as OpenAI.Responses.ResponseOutputMessage;
    const [part] = message.content as OpenAI.Responses.ResponseOutputText[];
    assertEquals(part.logprobs!.map(({ token }) => token).join(""), part.text);
    const again = await client.responses.create({ ...request, thinking_budget_tokens: 8 } as Request);
    assertEquals(again.output_text, first.output_text);
    assert(again.usage!.input_tokens_details.cached_tokens > 200, JSON.stringify(again.usage));
    const { input_tokens } = await client.responses.inputTokens.count(request as never);
    assertEquals(input_tokens, first.usage!.input_tokens);
  });
});
