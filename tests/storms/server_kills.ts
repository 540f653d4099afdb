import { assertEquals } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { Random } from "../../testing/random.ts";
import { startSupervised } from "../server/supervised_server.ts";
import { type Figures, quantile, type Storm } from "./storm.ts";

const LINES = 150;
const MAX_TOKENS = 24;
const JSON_BODY = { "content-type": "application/json" };

const promptOf = (i: number) => `The ${i}th little dinosaur said:`;
const idOf = (i: number) => `line-${i}`;
const lineOf = (i: number) => ({
  model: "demo",
  prompt: promptOf(i),
  max_tokens: MAX_TOKENS,
  temperature: 0,
});
const messageOf = (i: number) => ({
  model: "demo",
  max_tokens: MAX_TOKENS,
  temperature: 0,
  messages: [{ role: "user", content: promptOf(i) }],
});

// deno-lint-ignore no-explicit-any -- bodies of several APIs
type Json = any;

/** A client of a server that is sometimes down: failed calls are repeated. */
class Client {
  constructor(private readonly url: string) {}

  async text(path: string, init?: RequestInit): Promise<string> {
    for (let tries = 0;; tries++) {
      try {
        const response = await fetch(this.url + path, init);
        const text = await response.text();
        if (response.ok) return text;
        throw new Error(`${path}: ${response.status} ${text}`);
      } catch (error) {
        if (tries >= 300) throw error;
        await delay(200);
      }
    }
  }

  async get(path: string): Promise<Json> {
    return JSON.parse(await this.text(path));
  }

  async post(path: string, body: unknown): Promise<Json> {
    return JSON.parse(
      await this.text(path, { method: "POST", headers: JSON_BODY, body: JSON.stringify(body) }),
    );
  }

  async lines(path: string): Promise<Json[]> {
    return (await this.text(path)).trimEnd().split("\n").map((line) => JSON.parse(line));
  }
}

/** A batch that is compared with the answers of single requests. */
interface Kind {
  start(client: Client): Promise<string>;
  ended(client: Client, id: string): Promise<boolean>;
  /** The text of each answer with its id, in any order. */
  answers(client: Client, id: string): Promise<[id: string, text: string][]>;
  alone(client: Client, i: number): Promise<string>;
}

const numbers = Array.from({ length: LINES }, (_, i) => i);

const openaiBatch: Kind = {
  async start(client) {
    const lines = numbers.map((i) =>
      JSON.stringify({ custom_id: idOf(i), method: "POST", url: "/v1/completions", body: lineOf(i) })
    );
    const form = new FormData();
    form.set("purpose", "batch");
    form.set("file", new File([lines.join("\n")], "lines.jsonl"));
    const file = JSON.parse(await client.text("/v1/files", { method: "POST", body: form }));
    const body = { input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" };
    return (await client.post("/v1/batches", body)).id;
  },
  async ended(client, id) {
    const { status } = await client.get(`/v1/batches/${id}`);
    return status === "completed" || status === "failed";
  },
  async answers(client, id) {
    const { output_file_id: file } = await client.get(`/v1/batches/${id}`);
    const lines = await client.lines(`/v1/files/${file}/content`);
    return lines.map(({ custom_id, response }) => [custom_id, response.body.choices?.[0].text]);
  },
  alone: async (client, i) => (await client.post("/v1/completions", lineOf(i))).choices[0].text,
};

const messageBatch: Kind = {
  async start(client) {
    const requests = numbers.map((i) => ({ custom_id: idOf(i), params: messageOf(i) }));
    return (await client.post("/v1/messages/batches", { requests })).id;
  },
  async ended(client, id) {
    return (await client.get(`/v1/messages/batches/${id}`)).processing_status === "ended";
  },
  async answers(client, id) {
    const lines = await client.lines(`/v1/messages/batches/${id}/results`);
    return lines.map(({ custom_id, result }) => [custom_id, result.message?.content[0]?.text ?? ""]);
  },
  alone: async (client, i) => (await client.post("/v1/messages", messageOf(i))).content[0]?.text ?? "",
};

const KINDS = [openaiBatch, messageBatch];

/**
 * Kills the serving process during batches of both APIs, and between stored responses. Afterwards each line must be
 * answered once as alone, and each stored response must read as it was answered.
 */
export async function serverKills({ count, seed, say }: Storm): Promise<Figures> {
  const data = await Deno.makeTempDir();
  const permissions = [`--allow-write=${data}`, "--allow-net=127.0.0.1"];
  const server = await startSupervised(["--data", data, "--parallel", "4", "--ctx", "256"], permissions);
  let figures: Figures;
  try {
    figures = await killAndCompare(server, { count, seed, say });
  } catch (error) {
    const { stderr } = await server.end("SIGTERM");
    throw new Error(`The server said:\n${stderr}`, { cause: error });
  }
  const { code } = await server.end("SIGTERM");
  await Deno.remove(data, { recursive: true });
  return { ...figures, exit_code: code };
}

async function killAndCompare(
  { url, killChild }: Awaited<ReturnType<typeof startSupervised>>,
  { count, seed, say }: Storm,
): Promise<Figures> {
  const client = new Client(url);
  const random = new Random(seed);
  const started: { kind: Kind; id: string }[] = [];
  const stored: Json[] = [];
  const restartMs: number[] = [];
  for (let i = 0; i < count; i++) {
    const last = started.at(-1);
    if (last === undefined || await last.kind.ended(client, last.id)) {
      const kind = KINDS[started.length % KINDS.length];
      started.push({ kind, id: await kind.start(client) });
    }
    const previous = stored.at(-1)?.id;
    const body = { model: "demo", input: promptOf(i), max_output_tokens: 8, previous_response_id: previous };
    stored.push(
      await client.post("/v1/responses", i % 4 === 0 ? { ...body, previous_response_id: null } : body),
    );
    await delay(100 + random.below(900)); // a batch takes one or two seconds
    restartMs.push(await killChild());
    say(`${i + 1} kills`);
  }
  let [doubled, lost, wrong] = [0, 0, 0];
  for (const { kind, id } of started) {
    while (!await kind.ended(client, id)) await delay(200);
    const answers = await kind.answers(client, id);
    const texts = new Map(answers);
    doubled += answers.length - texts.size;
    for (const i of numbers) {
      if (!texts.has(idOf(i))) lost++;
      else if (texts.get(idOf(i)) !== await kind.alone(client, i)) wrong++;
    }
  }
  for (const response of stored) assertEquals(await client.get(`/v1/responses/${response.id}`), response);
  return {
    batches: started.length,
    lines: LINES * started.length,
    responses: stored.length,
    lost,
    doubled,
    wrong,
    restart_ms: quantile(restartMs, 0.5),
  };
}
