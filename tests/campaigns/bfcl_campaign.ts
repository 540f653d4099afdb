/**
 * Asks a model the questions of the Berkeley function-calling leaderboard with `tool_choice: "required"`, and checks
 * only the form of the calls (`deno task tools:bfcl`). Each call must name a given tool, its arguments must match the
 * tool's schema, and streamed fragments must add up to the whole. Any model works; random weights are the hardest test.
 * The questions come from PyPI's bfcl-eval, which is fetched into .cache/.
 */
import { fromFileUrl } from "@std/path";
import OpenAI from "openai";
import { campaignLine, say } from "../../testing/campaign.ts";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { askBothWays, judgeCalls, type Said, type Tool } from "../../testing/tool_calls.ts";

const PACKAGE = "bfcl-eval==2026.3.23";
const CACHE = fromFileUrl(new URL("../../.cache/bfcl", import.meta.url));
/** Names of the question files that include their functions. */
const FILES = [
  "simple_python",
  "simple_java",
  "simple_javascript",
  "multiple",
  "parallel",
  "parallel_multiple",
  "live_simple",
  "live_multiple",
  "live_parallel",
  "live_parallel_multiple",
  "irrelevance",
];

interface Question {
  readonly id: string;
  readonly messages: OpenAI.ChatCompletionMessageParam[];
  readonly tools: Tool[];
}

/** Limits thinking, which random weights would never end. The client passes on unknown fields. */
const THINKING = { thinking_budget_tokens: 16 };

/** JSON schema's names for the questions' types. Types of other languages become texts or any value. */
const TYPES: Record<string, string | undefined> = {
  dict: "object",
  HashMap: "object",
  float: "number",
  double: "number",
  long: "integer",
  tuple: "array",
  Array: "array",
  ArrayList: "array",
  Boolean: "boolean",
  String: "string",
  string: "string",
  integer: "integer",
  number: "number",
  boolean: "boolean",
  array: "array",
  object: "object",
};

/**
 * Returns a question's schema with JSON schema's types. Names in `properties` may equal keywords and stay unchanged.
 */
function schemaOf(given: Record<string, unknown>): Record<string, unknown> {
  const { type, properties, items, required, enum: values, description } = given;
  const known = TYPES[String(type)];
  return {
    ...(known === undefined ? {} : { type: known }),
    ...(description === undefined ? {} : { description }),
    ...(Array.isArray(values) ? { enum: values } : {}),
    ...(isObject(items) ? { items: schemaOf(items) } : {}),
    ...(isObject(properties)
      ? {
        properties: Object.fromEntries(
          Object.entries(properties).map((
            [name, value],
          ) => [name, schemaOf(value as Record<string, unknown>)]),
        ),
      }
      : {}),
    ...(Array.isArray(required) ? { required } : {}),
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

async function python(...args: string[]): Promise<void> {
  const { success } = await new Deno.Command("python3", { args, stdout: "null" }).output();
  if (!success) throw new Error(`python3 ${args.join(" ")} failed`);
}

async function fetchQuestions(): Promise<Question[]> {
  const data = `${CACHE}/bfcl_eval/data`;
  const isThere = await Deno.stat(data).then(() => true, () => false);
  if (!isThere) await python("-m", "pip", "install", "-q", "--no-deps", "--target", CACHE, PACKAGE);
  const questions: Question[] = [];
  for (const file of FILES) {
    const text = await Deno.readTextFile(`${data}/BFCL_v4_${file}.json`);
    for (const line of text.split("\n").filter((line) => line !== "")) {
      const { id, question, function: functions } = JSON.parse(line);
      const tools = functions.map(
        ({ name, description, parameters }: { name: string; description: string; parameters: never }) => ({
          type: "function",
          function: { name, description, parameters: schemaOf(parameters) },
        }),
      );
      questions.push({ id, messages: question[0], tools });
    }
  }
  return questions;
}

/** Raises the probability of end tokens: answers of random weights would otherwise run to `max_tokens`. */
async function endsOfTexts({ post }: LiveServer): Promise<Record<string, number>> {
  const biases: Record<string, number> = {};
  for (const content of ['"', '",', '"}', '"]', "}", "]", "}}", '."', '"\n', ',"', '"}}', "}\n"]) {
    const { tokens } = await post("/tokenize", { content });
    if (tokens.length === 1) biases[tokens[0]] = 8;
  }
  return biases;
}

interface Tally {
  asked: number;
  calls: number;
  /** Number of answers that max_tokens cut off. */
  cut: number;
  /** Number of questions longer than the context. */
  tooLong: number;
  /** Refused schemas, counted by reason. */
  refused: Map<string, number>;
  failures: string[];
}

async function ask(
  { client }: LiveServer,
  model: string,
  question: Question,
  options: { tokens: number; seed: number; biases: Record<string, number> },
  tally: Tally,
): Promise<void> {
  const { id, messages, tools } = question;
  let said: Said;
  try {
    [said] = await askBothWays(client, {
      model,
      messages,
      tools,
      tool_choice: "required",
      seed: options.seed,
      max_tokens: options.tokens,
      logit_bias: options.biases,
      ...THINKING,
    });
    judgeCalls(said, tools);
    if (said.finish !== "length" && said.calls.length === 0) throw new Error("No call was made");
  } catch (error) {
    const code = error instanceof OpenAI.APIError ? error.code : undefined;
    if (code === "context_length_exceeded") tally.tooLong++;
    else if (code === "invalid_constraint") {
      const { message } = error as Error;
      tally.refused.set(message, (tally.refused.get(message) ?? 0) + 1);
    } else tally.failures.push(`${id}: ${(error as Error).message.slice(0, 400)}`);
    return;
  }
  tally.asked++;
  tally.calls += Math.max(0, said.calls.length - (said.finish === "length" ? 1 : 0));
  if (said.finish === "length") tally.cut++;
}

async function main(): Promise<number> {
  const { model: file, count: wanted, parallel, tokens } = campaignLine({
    task: "tools:bfcl",
    does:
      "Ask a model the questions of bfcl-eval with tool_choice: required, and look at the form of each call.",
    options: {
      model: ["GGUF file; without it the demo model", undefined],
      count: ["questions, spread over all files; 0 for all", 0],
      parallel: ["questions at once", 8],
      tokens: ["most tokens of an answer", 400],
    },
  });
  const all = await fetchQuestions();
  const count = Math.min(wanted || all.length, all.length);
  const questions = Array.from({ length: count }, (_, i) => all[Math.floor(i * all.length / count)]);
  const tally: Tally = { asked: 0, calls: 0, cut: 0, tooLong: 0, refused: new Map(), failures: [] };
  // The demo model is started without this option, because its context is shorter.
  const args = ["--parallel", `${parallel}`, ...(file ? ["--ctx", "8192", "--model", file] : [])];
  const began = performance.now();
  await withLiveServer(args, async (server) => {
    const [{ id: model }] = await Array.fromAsync(await server.client.models.list());
    const biases = await endsOfTexts(server);
    let next = 0;
    await Promise.all(Array.from({ length: parallel }, async () => {
      while (next < questions.length) {
        const seed = next++;
        await ask(server, model, questions[seed], { tokens, seed, biases }, tally);
      }
    }));
  });
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  for (const failure of tally.failures.slice(0, 20)) say(failure);
  for (const [why, times] of tally.refused) say(`refused ${times} x: ${why.slice(0, 200)}`);
  say(
    `${tally.asked} questions answered twice in ${seconds} s: ${tally.calls} calls, all of them valid; ${tally.cut} answers ` +
      `cut by max_tokens; ${tally.tooLong} questions longer than the context; ${tally.failures.length} failures`,
  );
  return tally.failures.length > 0 || tally.asked === 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
