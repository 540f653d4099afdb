/**
 * Repeatedly kills the serving process while batches run (`deno task serve:kills`). Every line must have one answer,
 * equal to that of an undisturbed server. Reports the time of each restart.
 */
import { delay } from "@std/async/delay.js";
import { campaignLine } from "../../testing/campaign.ts";
import { Random } from "../../testing/random.ts";
import { startSupervised } from "../server/supervised_server.ts";

const LINES = 150;
const MAX_TOKENS = 24;

interface Line {
  readonly custom_id: string;
  readonly response: { readonly status_code: number; readonly body: { choices: { text: string }[] } };
}

const bodyOf = (i: number) => ({
  model: "demo",
  prompt: `The ${i}th little dinosaur said:`,
  max_tokens: MAX_TOKENS,
  temperature: 0,
});

async function call(url: string, path: string, init?: RequestInit): Promise<Response> {
  // Requests are repeated while the server is down.
  for (let tries = 0;; tries++) {
    try {
      const response = await fetch(url + path, init);
      if (response.ok) return response;
      throw new Error(`${path}: ${response.status} ${await response.text()}`);
    } catch (error) {
      if (tries >= 300) throw error;
      await delay(200);
    }
  }
}

async function startBatch(url: string): Promise<string> {
  const lines = Array.from({ length: LINES }, (_, i) => {
    return JSON.stringify({ custom_id: `${i}`, method: "POST", url: "/v1/completions", body: bodyOf(i) });
  });
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File([lines.join("\n")], "lines.jsonl"));
  const file = await (await call(url, "/v1/files", { method: "POST", body: form })).json();
  const body = { input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" };
  const headers = { "content-type": "application/json" };
  const batch =
    await (await call(url, "/v1/batches", { method: "POST", headers, body: JSON.stringify(body) })).json();
  return batch.id;
}

async function batchOf(url: string, id: string) {
  return await (await call(url, `/v1/batches/${id}`)).json();
}

/** Returns how many lines are missing, duplicated, failed or wrong. */
async function check(url: string, id: string, wanted: readonly string[]) {
  let batch = await batchOf(url, id);
  while (batch.status !== "completed" && batch.status !== "failed") {
    await delay(200);
    batch = await batchOf(url, id);
  }
  const text = await (await call(url, `/v1/files/${batch.output_file_id}/content`)).text();
  const lines: Line[] = text.trimEnd().split("\n").map((line) => JSON.parse(line));
  const answers = new Map(lines.map(({ custom_id, response }) => [custom_id, response]));
  return {
    double: lines.length - answers.size,
    lost: wanted.filter((_, i) => !answers.has(`${i}`)).length,
    wrong:
      wanted.filter((text, i) => answers.has(`${i}`) && answers.get(`${i}`)!.body.choices?.[0].text !== text)
        .length,
  };
}

async function answersAlone(url: string): Promise<string[]> {
  const answers: string[] = [];
  for (let i = 0; i < LINES; i++) {
    const init = {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(bodyOf(i)),
    };
    answers.push((await (await call(url, "/v1/completions", init)).json()).choices[0].text);
  }
  return answers;
}

const { kills, seed } = campaignLine({
  task: "serve:kills",
  does:
    "Kill the process that serves while batches run: each line must be answered once, and each restart be quick.",
  options: { kills: ["kill -9 of that process", 100], seed: ["what chance begins with", 1] },
});
const random = new Random(seed);
const data = await Deno.makeTempDir();
const begun = performance.now();
const server = await startSupervised(["--data", data, "--parallel", "4", "--ctx", "256"], [
  `--allow-write=${data}`,
  "--allow-net=127.0.0.1",
]);
const startMs = performance.now() - begun;
const started: string[] = [];
const took: number[] = [];
const sums = { double: 0, lost: 0, wrong: 0 };
try {
  await killAndCheck();
} catch (error) {
  const { stderr } = await server.end("SIGTERM");
  throw new Error(`The server said:\n${stderr}`, { cause: error });
}

async function killAndCheck(): Promise<void> {
  for (let i = 0; i < kills; i++) {
    const last = started.at(-1);
    if (last === undefined || (await batchOf(server.url, last)).status === "completed") {
      started.push(await startBatch(server.url));
    }
    await delay(1000 + random.below(2000));
    took.push(await server.killChild());
  }
  const wanted = await answersAlone(server.url);
  for (const id of started) {
    const found = await check(server.url, id, wanted);
    for (const key of ["double", "lost", "wrong"] as const) sums[key] += found[key];
  }
}

const { code } = await server.end("SIGTERM");
await Deno.remove(data, { recursive: true });
took.sort((a, b) => a - b);
const report = {
  kills: took.length,
  batches: started.length,
  lines: LINES * started.length,
  ...sums,
  start_ms: Math.round(startMs),
  back_ms: { median: Math.round(took[took.length >> 1]), most: Math.round(took.at(-1)!) },
  exit_code: code,
};
Deno.stdout.writeSync(new TextEncoder().encode(`${JSON.stringify(report, undefined, 2)}\n`));
Deno.exit(sums.double + sums.lost + sums.wrong + code > 0 ? 1 : 0);
