/** Encoders with many texts: local batches, batches over NATS, and cancelled requests. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { batch, inFolder, readLines } from "./commands.ts";
import { NatsServer, natsServerPath } from "../nats/nats_server.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { withTextModel } from "../../testing/text_model.ts";

const TEXTS = 24;
const line = (n: number) => {
  const input = Array.from({ length: 1 + n * 5 % 90 }, (_, i) => (n * 31 + i * 7) % 256);
  const [url, body] = n === 7
    ? ["/v1/completions", { prompt: input, max_tokens: 4 }]
    : ["/v1/embeddings", { input }];
  return JSON.stringify({ custom_id: `t${n}`, method: "POST", url, body: { model: "encoder", ...body } });
};

interface Answer {
  readonly custom_id: string;
  readonly response: {
    readonly body: { data?: { embedding: number[] }[]; error?: { code: string; message: string } };
  };
}

async function vectors(path: string): Promise<[id: string, embedding: number[]][]> {
  const answers = await readLines<Answer>(path);
  return answers.map(({ custom_id, response }): [string, number[]] => {
    return [custom_id, response.body.data![0].embedding];
  }).sort(([a], [b]) => a < b ? -1 : 1);
}

Deno.test("encoders: a batch gives the same vectors locally and over NATS, and refuses only generation lines", async () => {
  await inFolder(Array.from({ length: TEXTS }, (_, n) => line(n)), async (path) => {
    const model = path("encoder.gguf");
    const texts = { pooling: 1 };
    await Deno.writeFile(model, synthesize({ architecture: "nomic-bert", types: ["Q8_0"], seed: 4, texts }));
    const here = batch(["run", path("in.jsonl"), "--out", path("out.jsonl"), "--model", model]);
    const { code, stderr } = await here.output();
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    const alone = await vectors(path("out.jsonl"));
    assertEquals(alone.length, TEXTS - 1);
    const [refused, ...more] = await readLines<Answer>(path("out.errors.jsonl"));
    assertEquals([refused.custom_id, refused.response.body.error?.code, more], ["t7", "not_supported", []]);
    if (natsServerPath() === undefined) return;

    await using server = await NatsServer.start(["-js"]);
    const worker = batch(["worker", "--nats", server.url, "--model", model, "--threads", "1"]);
    const args = ["run", path("in.jsonl"), "--out", path("far.jsonl"), "--model", model];
    const far = await batch([...args, "--nats", server.url]).output();
    worker.kill("SIGINT");
    await worker.output();
    assertEquals(far.code, 0, new TextDecoder().decode(far.stderr));
    assertEquals(await vectors(path("far.jsonl")), alone);
  });
});

Deno.test("encoders: a cancelled request changes no other rows and frees everything", async () => {
  const text = (n: number) => Array.from({ length: 40 + n % 90 }, (_, i) => (n * 37 + i * 7) % 256);
  const many = Array.from({ length: 300 }, (_, n) => text(n));
  await withTextModel({ pooling: 1 }, { architecture: "bert", contextLength: undefined }, async (engine) => {
    const [alone] = (await engine.embed({ inputs: [text(3)] })).rows;
    const before = engine.stats().steps;
    const whole = engine.embed({ inputs: many.slice(0, 30) });
    const abort = new AbortController();
    const left = engine.embed({ inputs: many, signal: abort.signal });
    const refused = assertRejects(() => left, Error, "left");
    setTimeout(() => abort.abort(new Error("left")), 5);
    await refused;
    assertEquals((await whole).rows[3], alone);
    const { running, waiting, steps } = engine.stats();
    assertEquals([running, waiting], [0, 0]);
    // All texts would need about 50 steps of 512 rows.
    assert(steps - before < 40, `${steps - before} steps`);
    assertEquals((await engine.embed({ inputs: [text(3)] })).rows[0], alone);
  });
});
