import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { assert, assertEquals } from "@std/assert";
import { type Call, isMood, MOOD, MOST, QUESTION, type Served } from "./calls.ts";

/* LangChain over OpenAI's chat completions and Responses. */

const tools = [{
  type: "function",
  function: { name: "set_mood", description: "Sets the mood", parameters: MOOD },
}];
const apiKey = "none";
const plain = { chat_template_kwargs: { enable_thinking: false } };

function callsOf(api: "chat" | "responses"): Call[] {
  const modelOf = ({ base, model }: Served, maxTokens = 600) =>
    new ChatOpenAI({
      model,
      apiKey,
      temperature: 0,
      maxTokens,
      maxRetries: 0,
      useResponsesApi: api === "responses",
      modelKwargs: plain,
      configuration: { baseURL: `${base}/v1` },
    });
  return [
    {
      name: `${api}: text, whole and streamed`,
      async run(served) {
        const model = modelOf(served, MOST);
        const whole = await model.invoke(QUESTION);
        const chunks = await Array.fromAsync(await model.stream(QUESTION));
        assertEquals(chunks.map(({ text }) => text).join(""), whole.text);
        assert(whole.usage_metadata!.output_tokens > 0);
      },
    },
    {
      name: `${api}: an object of a schema`,
      async run(served) {
        const model = modelOf(served).withStructuredOutput(MOOD, {
          name: "mood",
          method: "jsonSchema",
          strict: true,
        });
        assert(isMood(await model.invoke(QUESTION)));
      },
    },
    {
      name: `${api}: tools, whose results go back`,
      async run(served) {
        const model = modelOf(served).bindTools(tools, {
          tool_choice: "set_mood",
          parallel_tool_calls: false,
        });
        const answer = await model.invoke(QUESTION);
        const [call] = answer.tool_calls!;
        assert(isMood(call.args));
        const result = new ToolMessage({ tool_call_id: call.id!, content: "done" });
        const again = await model.invoke([new HumanMessage(QUESTION), answer, result]);
        assert(isMood(again.tool_calls![0].args));
      },
    },
  ];
}

export const LANGCHAIN_CALLS: readonly Call[] = [
  ...callsOf("chat"),
  ...callsOf("responses"),
  {
    name: "embeddings",
    async run({ base, model }) {
      const embeddings = new OpenAIEmbeddings({ model, apiKey, configuration: { baseURL: `${base}/v1` } });
      const [first, second] = await embeddings.embedDocuments([QUESTION, "Hi"]);
      assertEquals(first, await embeddings.embedQuery(QUESTION));
      assertEquals(first.length, second.length);
    },
  },
];
