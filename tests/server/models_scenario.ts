import { basename } from "@std/path";
import { measureModel } from "../../engine/load/load.ts";
import { type LiveServer, runLiveServer } from "../../testing/live_server.ts";
import { Random } from "../../testing/random.ts";

/**
 * More models than memory (`deno task models`): random requests over all models; each answer must equal the answer
 * alone. The suite runs a few requests on small models (models_test.ts).
 */

export interface CampaignOptions {
  readonly files: readonly string[];
  readonly requests: number;
  readonly crowd: number;
  /** Number of timed first tokens per model. */
  readonly loads: number;
  readonly seed: number;
  /** Number of vocabulary tokens in prompts. */
  readonly vocabulary: number;
  /** Milliseconds before the memory is measured: V8 collects unloaded models' garbage after about eight seconds. */
  readonly rest: number;
  readonly note: (line: string) => void;
}

export interface CampaignResult {
  readonly wrong: number;
  /** Answers other than 200. */
  readonly refused: number;
  /** Number of loads of models. */
  readonly loaded: number;
  /** Resident bytes without a loaded model: after one load of each, and at the end. */
  readonly resident: { readonly before: number; readonly after: number };
  /** Per model: milliseconds of a load, and until the first token of a request that loads it. */
  readonly times: readonly { readonly model: string; readonly load: number; readonly first: number }[];
}

const CONTEXT = 512;
const PARALLEL = 4;

/** Different requests to each model. */
const KINDS = 16;
const SIZE = ["--ctx", String(CONTEXT), "--parallel", String(PARALLEL)];

interface Request {
  readonly model: string;
  readonly prompt: readonly number[];
  readonly max_tokens: number;
  readonly temperature: number;
  readonly seed: number;
  /** A constraint, in its request field. */
  readonly guided_regex?: string;
  readonly json_schema?: object;
}

/** Constraints of requests. Each load compiles them again for the model's vocabulary. */
const FORMS: readonly Pick<Request, "guided_regex" | "json_schema">[] = [
  { guided_regex: "[a-f]{1,9}(-[0-9]+)?" },
  { json_schema: { type: "array", items: { enum: ["left", "right", 7] }, minItems: 1, maxItems: 4 } },
];

/** Memory for any two of the models, but never three. */
async function roomForTwo(files: readonly string[]): Promise<number> {
  const all = await Promise.all(files.map(async (model) => {
    const { memory } = await measureModel({ model, contextLength: CONTEXT, parallel: PARALLEL });
    return memory.weights + memory.kv + memory.states + memory.activations;
  }));
  const sorted = all.toSorted((a, b) => b - a);
  const room = Math.ceil((sorted[0] + sorted[1]) / 1e6) * 1e6;
  const three = sorted.slice(-3).reduce((sum, bytes) => sum + bytes, 0);
  if (three <= room) {
    throw new Error(`Three of these models fit into ${room} bytes; take models of like size`);
  }
  return room;
}

export async function campaign(options: CampaignOptions): Promise<CampaignResult> {
  const { files, note } = options;
  const room = await roomForTwo(files);
  note(`${files.length} models in ${room / 1e6} MB`);
  const models = files.map((file) => basename(file).replace(/\.gguf$/, ""));
  const args = [...files.flatMap((file) => ["--model", file]), "--memory-mb", String(room / 1e6), ...SIZE];
  let result: CampaignResult | undefined;
  const { code, complaints } = await runLiveServer(["main.ts", "serve"], args, async (server) => {
    const requests = requestsTo(models, options);
    const truth = new Map<Request, string>();
    for (const request of requests) truth.set(request, await answer(server, request, false));
    const before = await residentWithout(server, models, options);
    note(`alone: ${truth.size} answers; ${megabytes(before)} resident with no model loaded`);
    const { wrong, refused } = await askCrowd(server, requests, truth, options);
    const after = await residentWithout(server, models, options);
    note(`crowd: ${wrong} wrong, ${refused} refused; ${megabytes(after)} resident with no model loaded`);
    const times = [];
    for (const model of models) times.push({ model, ...await timeLoads(server, model, options) });
    result = { wrong, refused, loaded: 0, resident: { before, after }, times };
  });
  const said = complaints.trimEnd().split("\n");
  const loads = said.filter((line) => / loaded in [\d.]+ s; /.test(line));
  if (code !== 0 || loads.length < said.length) {
    throw new Error(`The server ended with ${code}: ${complaints}`);
  }
  return { ...result!, loaded: loads.length };
}

function requestsTo(models: readonly string[], { seed, vocabulary }: CampaignOptions): Request[] {
  const random = new Random(seed);
  return models.flatMap((model) =>
    Array.from({ length: KINDS }, (_, i) => ({
      model,
      prompt: Array.from({ length: 1 + below(random, 60) }, () => below(random, vocabulary)),
      max_tokens: 1 + below(random, 16),
      temperature: i % 2,
      seed: below(random, 1000),
      ...(i % 4 < 2 ? {} : FORMS[i % 4 - 2]),
    }))
  );
}

/** The text of an answer, whole or streamed; throws unless the status is 200. */
export async function answer(server: LiveServer, request: Request, stream: boolean): Promise<string> {
  const body = { ...request, stream, ignore_eos: true };
  const response = await fetch(`${server.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
  if (!stream) return check(request, JSON.parse(text));
  const chunks = text.split("\n\n").filter((line) => line.startsWith("data: {")).map((line) =>
    JSON.parse(line.slice(6))
  );
  return chunks.map((chunk) => check(request, chunk)).join("");
}

// deno-lint-ignore no-explicit-any -- an answer as it comes
function check({ model }: Request, body: any): string {
  if (body.error || body.model !== model) throw new Error(JSON.stringify(body));
  return body.choices[0].text;
}

async function askCrowd(
  server: LiveServer,
  requests: readonly Request[],
  truth: ReadonlyMap<Request, string>,
  { requests: count, crowd, seed, note }: CampaignOptions,
) {
  const random = new Random(seed + 1);
  let [asked, wrong, refused] = [0, 0, 0];
  const client = async () => {
    while (asked++ < count) {
      const request = requests[below(random, requests.length)];
      if (below(random, 8) === 0) await leave(server, request, below(random, 200));
      try {
        const text = await answer(server, request, below(random, 2) === 0);
        if (text !== truth.get(request)) {
          wrong++;
          note(`wrong: ${JSON.stringify({ request, text, truth: truth.get(request) })}`);
        }
      } catch (error) {
        refused++;
        note(`refused: ${(error as Error).message}`);
      }
    }
  };
  await Promise.all(Array.from({ length: crowd }, client));
  return { wrong, refused };
}

/** A client that disconnects during a wait, a load or an answer. */
async function leave(server: LiveServer, request: Request, ms: number): Promise<void> {
  await fetch(`${server.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...request, max_tokens: 400, ignore_eos: true, stream: true }),
    signal: AbortSignal.timeout(ms + 1),
  }).then((response) => response.text()).catch(() => {});
}

async function residentWithout(server: LiveServer, models: readonly string[], { rest }: CampaignOptions) {
  for (const model of models) await server.post("/models/unload", { model });
  await new Promise((resolve) => setTimeout(resolve, rest));
  return await server.metric("process_resident_memory_bytes");
}

/** Returns the best of several load times, because any single one may be late on a busy machine. */
async function timeLoads(server: LiveServer, model: string, { loads, vocabulary }: CampaignOptions) {
  let [load, first] = [Infinity, Infinity];
  const prompt = [vocabulary - 1];
  for (let i = 0; i < loads; i++) {
    await server.post("/models/unload", { model });
    const start = performance.now();
    await server.post("/models/load", { model });
    load = Math.min(load, performance.now() - start);
    await server.post("/models/unload", { model });
    const asked = performance.now();
    await answer(server, { model, prompt, max_tokens: 1, temperature: 0, seed: 0 }, false);
    first = Math.min(first, performance.now() - asked);
  }
  return { load, first };
}

function below(random: Random, limit: number): number {
  return Math.floor(random.unit() * limit);
}

export const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`;
