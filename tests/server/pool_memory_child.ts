/**
 * Models that are loaded and unloaded in turns, hundreds of times (pool_memory_test.ts): what the process holds after some of the
 * loads. Wants --expose-gc, so that what is only not collected yet does not count.
 */
import type { GenerateRequest, HeldEngine } from "../../engine/mod.ts";
import { openPool } from "../../lib/pool.ts";

/** What a process holds, garbage left out. */
export interface Held {
  /** Bytes of JavaScript's heap, and of its buffers beside it. */
  readonly heap: number;
  readonly buffers: number;
  /** Resident bytes beside both: the kernels' and the grammars', and what their allocator keeps. */
  readonly native: number;
  readonly descriptors: number;
}

/** What a run of it is: `rounds` are the loads after which the process is looked at. */
export interface Rounds {
  readonly models: readonly string[];
  readonly rounds: readonly number[];
  /** A folder for prompts. */
  readonly disk: string;
}

/** Loads between two collections of garbage. */
const COLLECTED_AFTER = 20;
/** Room for any one of the models. */
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
    await new Promise((resolve) => setTimeout(resolve, 20)); // finalizers
  }
  const { rss, heapTotal, heapUsed, external } = Deno.memoryUsage();
  return {
    heap: heapUsed,
    buffers: external,
    native: rss - heapTotal - external,
    descriptors: await countEntries(`/proc/${Deno.pid}/fd`),
  };
}

/** Deno itself reads /proc for nobody who may not do everything. */
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
