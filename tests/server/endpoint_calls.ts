import { Random } from "../../testing/random.ts";

/*
 * Every endpoint that returns text or vectors: a request with a deterministic answer, and a reader for its whole and
 * streamed form.
 */

export interface EndpointCall {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
  /** The compared part of a whole answer. */
  readonly read: (answer: Json) => string;
  /** Returns an event's contribution to the compared part; undefined if the endpoint does not stream. */
  readonly add?: (event: Json) => string | undefined;
}

// deno-lint-ignore no-explicit-any -- shapes of four APIs
type Json = any;

const MAX_TOKENS = 24;

/** A different prompt for each number. */
function promptOf(number: number): string {
  const random = new Random(number + 1);
  const pick = (words: readonly string[]) => words[random.below(words.length)];
  const animal = pick(["fox", "hare", "owl", "newt", "crab", "bee", "ox", "eel"]);
  return `${number}: tell me of the ${pick(["old", "small", "quick", "grey"])} ${animal} and its ${
    pick(["nest", "river", "winter", "song"])
  }.`;
}

type Kind = (prompt: string) => EndpointCall;

const KINDS: readonly Kind[] = [
  (prompt) => ({
    path: "/v1/chat/completions",
    body: { messages: [{ role: "user", content: prompt }], max_tokens: MAX_TOKENS, temperature: 0 },
    read: (answer) => answer.choices[0].message.content,
    add: (event) => event.choices?.[0]?.delta?.content ?? "",
  }),
  (prompt) => ({
    path: "/v1/completions",
    body: { prompt, max_tokens: MAX_TOKENS, temperature: 0, ignore_eos: true },
    read: (answer) => answer.choices[0].text,
    add: (event) => event.choices?.[0]?.text ?? "",
  }),
  (prompt) => ({
    path: "/v1/responses",
    body: { input: prompt, max_output_tokens: MAX_TOKENS, temperature: 0 },
    read: (answer) => answer.output.at(-1)?.content?.[0]?.text ?? "",
    add: (event) => event.type === "response.output_text.delta" ? event.delta : "",
  }),
  (prompt) => ({
    path: "/v1/messages",
    body: { messages: [{ role: "user", content: prompt }], max_tokens: MAX_TOKENS, temperature: 0 },
    read: (answer) => answer.content.map(({ text = "" }: { text?: string }) => text).join(""),
    add: (event) => event.delta?.text ?? "",
  }),
  (prompt) => ({
    path: "/completion",
    body: { prompt, n_predict: MAX_TOKENS, temperature: 0, ignore_eos: true },
    read: (answer) => answer.content,
    add: (event) => event.content ?? "",
  }),
  (prompt) => ({
    path: "/v1/embeddings",
    body: { input: prompt, encoding_format: "base64" },
    read: (answer) => answer.data[0].embedding,
  }),
];

/** Call `number`: the endpoints in turn, each with a different prompt. */
export function endpointCall(number: number): EndpointCall {
  return KINDS[number % KINDS.length](promptOf(number));
}

/** Sends a call; throws unless the status is 200. */
export async function open(
  url: string,
  call: EndpointCall,
  stream: boolean,
  signal?: AbortSignal,
): Promise<Response> {
  const response = await fetch(url + call.path, {
    method: "POST",
    headers: { "content-type": "application/json", "anthropic-version": "2023-06-01" },
    body: JSON.stringify({ ...call.body, ...(stream && call.add ? { stream } : {}) }),
    signal,
  });
  if (response.ok) return response;
  throw new Error(`${call.path}: ${response.status} ${await response.text()}`);
}

/** Reads an answer to its end. */
export async function readAnswer(call: EndpointCall, response: Response): Promise<string> {
  const body = await response.text();
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    return call.read(JSON.parse(body));
  }
  const events = body.split("\n").filter((line) => line.startsWith("data: ") && line !== "data: [DONE]");
  return events.map((line) => call.add!(JSON.parse(line.slice("data: ".length)))).join("");
}
