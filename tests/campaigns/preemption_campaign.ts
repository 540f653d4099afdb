/**
 * The long campaigns of preemption (`deno task preemption --requests 1000 --chats 64 --model FILE`): the suite runs a
 * few requests of each. Stops at the first answer that differs from the same request's alone.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { blocksOfSequence } from "../../engine/cache/kv_blocks.ts";
import { loadEngine, measureModel } from "../../engine/load/load.ts";
import { engineOver, FakeBackend, type FakeBackendOptions, startEngine } from "../../testing/engine.ts";
import { DrawingBackend } from "../../testing/draws.ts";
import { type Engine, KV_TYPES, type KvType } from "../../engine/mod.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { HYBRID_LAYERS, mixedFile, mixedPlan, mixedPlanOf } from "../../testing/mixed_model.ts";
import { compareCrowd, type Crowd } from "../models/preemption.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

const HELP = `Let the KV cache run out, and look whether an answer changes.

Usage: deno task preemption [--requests N] [--seed N] [--chats N --model FILE]

  --requests N   requests in a pool that holds a few of them: on stand-ins of a model, of a hybrid, of layers with windows
                 and of a backend that takes several steps at once, and with the kernels on small models of llama's,
                 qwen3moe's, qwen35's and lfm2's kind and on one of windows, shared caches and recurrent states of two shapes
  --seed N       what chance begins with (default 1)
  --chats N      so many chats without max_tokens at once on a model, in 6 GB of KV cache for contexts of 4,096
                 tokens; each reads 300 tokens and leaves
  --model FILE   the model of the chats
`;

type Kind = new (options: FakeBackendOptions) => FakeBackend;

export interface StandIn {
  readonly name: string;
  readonly kind: Kind;
  readonly stateSlots?: number;
  readonly kvWindows?: readonly number[];
  /** Of a step; with few of them a window's sequence needs little. */
  readonly maxRows?: number;
}

export const STAND_INS: readonly StandIn[] = [
  { name: "a dense model", kind: FakeBackend },
  { name: "a hybrid", kind: FakeBackend, stateSlots: 30 },
  { name: "a hybrid with one snapshot", kind: FakeBackend, stateSlots: 13 },
  { name: "several steps at once", kind: DrawingBackend },
  { name: "a hybrid, several steps at once", kind: DrawingBackend, stateSlots: 16 },
  { name: "layers with windows", kind: FakeBackend, kvWindows: [40, 3, 100], maxRows: 20 },
  { name: "a hybrid with windows", kind: FakeBackend, stateSlots: 14, kvWindows: [64, 0], maxRows: 20 },
  { name: "windows, several steps at once", kind: DrawingBackend, kvWindows: [33], maxRows: 20 },
];
export const KERNEL_MODELS = ["llama", "qwen3moe", "qwen35", "lfm2"] as const;

const CONTEXT = 256;
const PARALLEL = 12;
const CHAT_CONTEXT = 4096;
const CHAT_TOKENS = 300;
const CHAT_KV_BYTES = 6e9;

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));
}

/** How often requests were preempted on a stand-in. */
export async function onStandIn(
  { kind, stateSlots, kvWindows = [], maxRows = 64 }: StandIn,
  crowd: Crowd,
): Promise<number> {
  const kvBlocks = blocksOfSequence({ windows: kvWindows, maxRows }, CONTEXT);
  const sizes = { kvBlocks, maxRows, parallel: PARALLEL, queue: crowd.company };
  const limits = { stateSlots, kvWindows, ...sizes };
  const { engine } = startEngine(limits, CONTEXT, kind);
  try {
    return await compareCrowd(engine, engine, crowd);
  } finally {
    await engine.close();
  }
}

/** Bytes of a KV cache that holds one context of so many tokens, and no more. */
export async function bytesOfContext(model: string, kvType: KvType, tokens: number): Promise<number> {
  return (await measureModel({ model, kvType, contextLength: tokens, parallel: 1 })).memory.kv;
}

/** How often requests were preempted with the kernels or on the GPU, on a small model. */
export async function onKernels(
  architecture: Architecture,
  kvType: KvType,
  crowd: Crowd,
  { backend, layers = 4 }: { readonly backend?: "webgpu"; readonly layers?: number } = {},
): Promise<number> {
  const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(model, synthesize({ architecture, seed: 3, types: ["Q8_0"], layers }));
    const kvBytes = await bytesOfContext(model, kvType, CONTEXT);
    const options = {
      model,
      backend,
      kvType,
      contextLength: CONTEXT,
      parallel: PARALLEL,
      kvBytes,
      threads: 1,
    };
    // How long drafts are is a matter of time, and so how many requests meet; tests/models/speculation_test.ts preempts with drafts.
    const { engine } = await loadEngine({ ...options, queue: crowd.company, speculate: "off" });
    try {
      return await compareCrowd(engine, engine, crowd);
    } finally {
      await engine.close();
    }
  } finally {
    await Deno.remove(model);
  }
}

/** The same on a model of every kind of layer at once, whose plan is no architecture's. */
export async function onMixedKernels(kvType: KvType, maxRows: number, crowd: Crowd): Promise<number> {
  const plan = await mixedPlanOf(HYBRID_LAYERS);
  const kvWindows = plan.kv.windows.slice(1);
  const kvBlocks = blocksOfSequence({ windows: kvWindows, maxRows }, CONTEXT);
  const sizes = { kvBlocks, stateSlots: PARALLEL + 3, maxRows, maxLogitRows: PARALLEL };
  const { bytes } = mixedFile(HYBRID_LAYERS);
  const { backend } = await KernelModel.loadAs(mixedPlan(HYBRID_LAYERS), bytes, sizes, {
    kvType,
    threads: 1,
  });
  const limits = { ...sizes, kvWindows, parallel: PARALLEL, queue: crowd.company };
  const engine = engineOver(backend, limits, CONTEXT, plan.vocabSize);
  try {
    return await compareCrowd(engine, engine, crowd);
  } finally {
    await engine.close();
  }
}

async function compare(requests: number, seed: number): Promise<void> {
  const crowd = { requests, company: 2 * PARALLEL, seed };
  const told = (name: string, preemptions: number) =>
    say(`${name}: ${requests} requests, ${preemptions} preemptions, every answer as alone`);
  for (const standIn of STAND_INS) told(standIn.name, await onStandIn(standIn, crowd));
  for (const architecture of KERNEL_MODELS) {
    for (const kvType of KV_TYPES) {
      told(`${architecture} with the kernels, ${kvType}`, await onKernels(architecture, kvType, crowd));
    }
  }
  for (const kvType of KV_TYPES) {
    for (const maxRows of [PARALLEL, 40]) {
      const name = `windows, shared caches and states with the kernels, ${kvType}, ${maxRows} rows a step`;
      told(name, await onMixedKernels(kvType, maxRows, crowd));
    }
  }
}

/** Chats without a limit: all at once, if memory is taken as they grow. */
async function chat(model: string, count: number): Promise<void> {
  const { engine, limits } = await loadForChats(model, count);
  say(
    `${limits.kvBlocksTotal} KV blocks, enough for ${
      Math.floor(limits.kvBlocksTotal * 32 / CHAT_CONTEXT)
    } contexts`,
  );
  const start = performance.now();
  let mostRunning = 0;
  let mostBlocks = 0;
  const one = async (i: number) => {
    const prompt = Array.from({ length: 20 + i }, (_, k) => (i * 37 + k * k * 7) % 256);
    let tokens = 0;
    for await (const event of engine.submit({ prompt, ignoreEos: true, sampling: { temperature: 0 } })) {
      const { running, kvBlocksUsed } = engine.stats();
      mostRunning = Math.max(mostRunning, running);
      mostBlocks = Math.max(mostBlocks, kvBlocksUsed);
      if (event.type === "token" && ++tokens === CHAT_TOKENS) return;
    }
    throw new Error(`Chat ${i} ended after ${tokens} tokens`);
  };
  await Promise.all(Array.from({ length: count }, (_, i) => one(i)));
  const seconds = (performance.now() - start) / 1000;
  say(
    `${count} chats of ${CHAT_TOKENS} tokens without max_tokens: ${mostRunning} ran at once in at most ` +
      `${mostBlocks} blocks, ${engine.stats().preemptions} preemptions, ` +
      `${(count * CHAT_TOKENS / seconds).toFixed(0)} tokens/s`,
  );
  await engine.close();
}

async function loadForChats(model: string, parallel: number) {
  const options = { model, parallel, contextLength: CHAT_CONTEXT, kvBytes: CHAT_KV_BYTES };
  const { engine } = await loadEngine(options);
  return { engine: engine as Engine, limits: engine.stats() };
}

async function main(args: string[]): Promise<number> {
  const flags = parseArgs(args, { string: ["requests", "seed", "chats", "model"], boolean: ["help"] });
  const [requests, seed, chats] = [flags.requests, flags.seed ?? "1", flags.chats].map((text) =>
    Number(text ?? 0)
  );
  const valid = [requests, seed, chats].every((count) => Number.isSafeInteger(count) && count >= 0);
  if (flags.help || !valid || requests + chats === 0 || (chats > 0 && flags.model === undefined)) {
    say(HELP);
    return flags.help ? 0 : 2;
  }
  if (requests > 0) await compare(requests, seed);
  if (chats > 0) await chat(flags.model!, chats);
  return 0;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
