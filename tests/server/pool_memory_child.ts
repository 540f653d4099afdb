/**
 * Loads and unloads models hundreds of times in turn, and reports the process' memory after some of the loads
 * (pool_memory_test.ts). Needs --expose-gc, so that garbage does not count.
 */
import type { GenerateRequest, HeldEngine } from "../../engine/mod.ts";
import { openPool } from "../../lib/pool.ts";

/** Memory and files of the process, without garbage. */
export interface Held {
  /** Bytes of JavaScript's heap and of its external buffers. */
  readonly heap: number;
  readonly buffers: number;
  /** Other resident bytes: kernels, grammars, and memory kept by their allocator. */
  readonly native: number;
  readonly descriptors: number;
}

/** Options of a run: `rounds` are the loads after which the process is measured. */
export interface Rounds {
  readonly models: readonly string[];
  readonly rounds: readonly number[];
  /** A prompt cache folder. */
  readonly disk: string;
}

/** Loads between two garbage collections. */
const COLLECTED_AFTER = 20;
/** Memory for any one of the models. */
const ROOM = 40e6;
const PROMPT = Array.from({ length: 40 }, (_, i) => 3 + i);
const REQUESTS: readonly GenerateRequest[] = [
  { prompt: PROMPT, maxTokens: 3, ignoreEos: true },
  { prompt: PROMPT, maxTokens: 3, constraint: { kind: "regex", pattern: "[a-z ]{1,8}" } },
];

function collect(): void {
  (globalThis as unknown as { gc(): void }).gc();
}

async function held(): Promise<Held> {
  for (let i = 0; i < 2; i++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 20)); // lets finalizers run
  }
  const { rss, heapTotal, heapUsed, external } = Deno.memoryUsage();
  return {
    heap: heapUsed,
    buffers: external,
    native: rss - heapTotal - external,
    descriptors: await countEntries(`/proc/${Deno.pid}/fd`),
  };
}

/** Deno reads /proc only with all permissions, so another program reads it. */
async function countEntries(folder: string): Promise<number> {
  const { stdout } = await new Deno.Command("ls", { args: [folder] }).output();
  return new TextDecoder().decode(stdout).trimEnd().split("\n").length;
}

async function answerAll({ engine, release }: HeldEngine): Promise<void> {
  for (const request of REQUESTS) for await (const _ of engine.submit(request));
  release();
}

async function loadInTurns({ models, rounds, disk }: Rounds): Promise<Held[]> {
  const pool = await openPool({
    files: models,
    aliases: () => [],
    memoryBytes: ROOM,
    load: {
      contextLength: 128,
      parallel: 2,
      threads: 2,
      promptCache: { folder: disk, bytes: ROOM, eager: true },
    },
    reloads: true,
    note: () => {},
    describe: () => {},
  });
  const seen: Held[] = [];
  for (let loads = 1; loads <= Math.max(...rounds); loads++) {
    const { id } = pool.list()[loads % models.length];
    await answerAll(await pool.use(id));
    await pool.unload(id);
    if (loads % COLLECTED_AFTER === 0) collect();
    if (rounds.includes(loads)) seen.push(await held());
  }
  await pool.close();
  return seen;
}

const seen = await loadInTurns(JSON.parse(Deno.args[0]));
await Deno.stdout.write(new TextEncoder().encode(JSON.stringify(seen)));
