/**
 * Measures how much one key's costly requests delay others (`deno task serve:attacks`). Prints the latency of `/health`
 * and of another key's short chats, alone and while 1 to 4 clients of the key attack.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { join } from "@std/path";
import { say } from "../../../testing/campaign.ts";
import { withLiveServer } from "../../../testing/live_server.ts";

const HELP = `Measure how much the costly requests of one key delay others.

Usage: deno task serve:attacks [--seconds N] [--clients LIST] [--only NAME] [--limit N]

  --seconds N      how long each attack lasts (default 5)
  --clients LIST   clients that attack at once (default 1,4)
  --only NAME      one attack
  --limit N        tokens a minute of the attacking key (default: no limit)
`;

const BYTES = 8 * 2 ** 20 - 1000;
const repeated = (text: string, bytes = BYTES) => text.repeat(Math.floor(bytes / text.length));
const chat = (content: string) => ({ messages: [{ role: "user", content }], max_tokens: 1 });
const messages = Array.from(
  { length: 9999 },
  (_, i) => ({ role: i % 2 ? "assistant" : "user", content: `message ${i}` }),
);
const schema = {
  type: "object",
  properties: Object.fromEntries(Array.from({ length: 900 }, (_, i) => [`p${i}`, {
    type: "object",
    properties: {
      a: { type: "string", minLength: 1 },
      b: { enum: ["x", "y", "z"] },
      c: { type: "number", minimum: i },
    },
  }])),
};
const tool = (i: number) => ({
  type: "function",
  name: `tool_${i}`,
  parameters: {
    type: "object",
    properties: { [`a${i}`]: { type: "string" }, b: { type: "integer", minimum: 0 } },
  },
});

/** Path and body of each attack's request. */
const ATTACKS: Readonly<Record<string, readonly [string, () => unknown]>> = {
  "special tokens": ["/tokenize", () => ({ content: repeated("<|im_end|>"), with_pieces: true })],
  words: ["/tokenize", () => ({ content: repeated("Hello, my world! ", 700_000), with_pieces: true })],
  "one word": ["/tokenize", () => ({ content: repeated("a") })],
  detokenize: ["/detokenize", () => ({ tokens: new Array(1_900_000).fill(71) })],
  "10,000 messages": ["/apply-template", () => ({ messages: [...messages, { role: "user", content: "?" }] })],
  "one long message": ["/v1/chat/completions", () => chat(repeated("what? "))],
  "escaped text": ["/v1/chat/completions", () => chat(repeated("\n", BYTES / 2))],
  "long prompt": ["/v1/completions", () => ({ prompt: repeated("once upon a time "), max_tokens: 1 })],
  "token ids": ["/v1/completions", () => ({ prompt: new Array(1_900_000).fill(71), max_tokens: 1 })],
  "wide object": ["/v1/completions", () => ({
    prompt: "a",
    max_tokens: 1,
    ...Object.fromEntries(Array.from({ length: 400_000 }, (_, i) => [`k${i}`, null])),
  })],
  embeddings: ["/v1/embeddings", () => ({ input: new Array(2000).fill(repeated("some words ", 4000)) })],
  schema: ["/v1/chat/completions", () => ({
    ...chat("a"),
    response_format: { type: "json_schema", json_schema: { name: "s", schema } },
  })],
  "512 tools": [
    "/v1/responses",
    () => ({ input: "a", max_output_tokens: 16, tools: Array.from({ length: 512 }, (_, i) => tool(i)) }),
  ],
};

interface Latencies {
  readonly health: number[];
  readonly chat: number[];
}

/** Requests `/health` and short chats until the time is over. */
async function measure(url: string, key: string, until: number): Promise<Latencies> {
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
  async function each(ask: () => Promise<Response>, waitMs: number): Promise<number[]> {
    const latencies: number[] = [];
    while (Date.now() < until) {
      const began = performance.now();
      const answer = await ask();
      await answer.arrayBuffer();
      if (!answer.ok) throw new Error(`A client that does nothing wrong got ${answer.status}`);
      latencies.push(performance.now() - began);
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
    return latencies.sort((a, b) => a - b);
  }
  const body = JSON.stringify({
    messages: [{ role: "user", content: "Hi" }],
    max_tokens: 16,
    ignore_eos: true,
  });
  const [health, chat] = await Promise.all([
    each(() => fetch(`${url}/health`, { headers }), 5),
    each(() => fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body }), 20),
  ]);
  return { health, chat };
}

function at(latencies: readonly number[], share: number): string {
  return latencies[Math.floor((latencies.length - 1) * share)]?.toFixed(1).padStart(8) ?? "       -";
}

function row(name: string, { health, chat }: Latencies, statuses = ""): void {
  say(
    `${name.padEnd(20)} ${at(health, 0.5)} ${at(health, 0.99)} ${at(chat, 0.5)} ${
      at(chat, 0.99)
    }  ${statuses}`,
  );
}

async function attacked(url: string, name: string, clients: number, seconds: number): Promise<void> {
  const [path, bodyOf] = ATTACKS[name];
  const body = JSON.stringify(bodyOf());
  const worker = new Worker(import.meta.resolve("./attack_client.ts"), { type: "module" });
  const until = Date.now() + seconds * 1000;
  const ended = new Promise<[number, number][]>((resolve) => worker.onmessage = ({ data }) => resolve(data));
  worker.postMessage({ url, key: "mallory", path, body, clients, until });
  const latencies = await measure(url, "alice", until);
  const statuses = (await ended).map(([status, count]) => `${count} x ${status}`).join(", ");
  worker.terminate();
  row(`${name}, ${clients}`, latencies, statuses);
}

async function main(): Promise<void> {
  const flags = parseArgs(Deno.args, { boolean: ["help"], string: ["only", "clients"] });
  if (flags.help) return say(HELP);
  const { seconds = 5, clients = "1,4", only, limit } = flags;
  const folder = await Deno.makeTempDir({ prefix: "attacks-" });
  const keys = [{ name: "alice", key: "alice" }, {
    name: "mallory",
    key: "mallory",
    tokens_per_minute: limit,
  }];
  await Deno.writeTextFile(join(folder, "keys.json"), JSON.stringify({ keys }), { mode: 0o600 });
  try {
    await withLiveServer(["--api-keys", join(folder, "keys.json")], async ({ url }) => {
      await measure(url, "alice", Date.now() + 1000);
      say(`milliseconds${" ".repeat(9)} health50 health99   chat50   chat99  answers to the attack`);
      row("alone", await measure(url, "alice", Date.now() + seconds * 1000));
      for (const name of only ? [only] : Object.keys(ATTACKS)) {
        for (const count of clients.split(",")) await attacked(url, name, Number(count), seconds);
      }
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

if (import.meta.main) await main();
