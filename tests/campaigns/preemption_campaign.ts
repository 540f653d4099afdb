import { parseArgs } from "@std/cli/parse_args.js";
import { loadEngine } from "../../engine/load/load.ts";
import { type Engine, KV_TYPES } from "../../engine/mod.ts";
import {
  KERNEL_MODELS,
  onKernels,
  onMixedKernels,
  onStandIn,
  PARALLEL,
  STAND_INS,
} from "../models/preemption_scenario.ts";
import { say } from "../../testing/campaign.ts";

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

const CHAT_CONTEXT = 4096;
const CHAT_TOKENS = 300;
const CHAT_KV_BYTES = 6e9;

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

/** Runs chats without a token limit. All run at once, because memory is allocated as they grow. */
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
