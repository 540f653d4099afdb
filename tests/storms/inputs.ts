/* Input from strangers, and stores and devices that fail. */
import { fromFileUrl, join } from "@std/path";
import { findAdapter } from "../../engine/backend/webgpu/device/gpu.ts";
import { GgufError, loadEngine } from "../../engine/load/load.ts";
import { EngineError } from "../../engine/mod.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { Random } from "../../testing/random.ts";
import { pullCampaign } from "../cli/pull_scenario.ts";
import { compileHostiles } from "../kernels/constraint_scenario.ts";
import { killOften } from "../models/prompt_cache_scenario.ts";
import { askCrowds } from "../server/form_crowd.ts";
import { Losses } from "../server/losses.ts";
import type { Figures, Scenario, Storm } from "./storm.ts";

const DEMO = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
/** Maximum milliseconds to compile a constraint on a busy machine; the library's own limit is CPU time. */
const COMPILE_MS = 5000;

async function badConstraints({ count, say }: Storm): Promise<Figures> {
  const tokenizer = createTokenizer((await openGguf(DEMO)).metadata);
  const sum = { compiled: 0, refused: 0, late: 0 };
  for (let round = 0; round < count; round++) {
    const { compiled, refused, late } = await compileHostiles(tokenizer, COMPILE_MS);
    sum.compiled += compiled;
    sum.refused += refused;
    sum.late += late.length;
    for (const line of late) say(`LATE ${line}`);
  }
  return sum;
}

async function constrainedCrowds({ count, seed, say }: Storm): Promise<Figures> {
  const { asked, whole, preemptions, wrong } = await askCrowds({ rounds: count, seed, tell: say });
  for (const line of wrong) say(`WRONG ${line}`);
  return { asked, whole, preemptions, wrong: wrong.length };
}

/** Cuts the file, or changes bytes of its header, of any place, or of a run. */
function damaged(good: Uint8Array<ArrayBuffer>, random: Random): Uint8Array<ArrayBuffer> {
  const kind = random.below(4);
  if (kind === 0) return good.slice(0, random.below(good.length));
  const bytes = good.slice();
  const reach = kind === 1 ? 4096 : bytes.length;
  for (let changes = 1 + random.below(8); changes > 0; changes--) {
    const at = random.below(reach);
    bytes.set(random.bytes(kind === 3 ? 1 + random.below(64) : 1).subarray(0, bytes.length - at), at);
  }
  return bytes;
}

/** Each damaged model is refused, or answers. A crash of native code ends this process. */
async function modelFiles({ count, seed }: Storm): Promise<Figures> {
  const good = await Deno.readFile(DEMO);
  const random = new Random(seed);
  const folder = await Deno.makeTempDir({ prefix: "compy-storm-" });
  const sum = { refused: 0, answered: 0, failed_answers: 0 };
  try {
    const model = join(folder, "model.gguf");
    for (let i = 0; i < count; i++) {
      await Deno.writeFile(model, damaged(good, random));
      sum[await tryModel(model)]++;
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  return sum;
}

async function tryModel(model: string): Promise<"refused" | "answered" | "failed_answers"> {
  let engine;
  try {
    engine = (await loadEngine({ model, parallel: 1, contextLength: 64, backend: "cpu" })).engine;
  } catch (error) {
    if (error instanceof GgufError) return "refused";
    throw error;
  }
  try {
    const events = engine.submit({ prompt: [1, 2, 3], maxTokens: 4, sampling: { temperature: 0 } });
    await Array.fromAsync(events);
    return "answered";
  } catch (error) {
    if (error instanceof EngineError) return "failed_answers";
    throw error;
  } finally {
    await engine.close();
  }
}

async function pulls({ count, seed, say }: Storm): Promise<Figures> {
  const outcome = await pullCampaign({ downloads: count, seed });
  for (const failure of outcome.failed) say(failure);
  say(JSON.stringify(outcome.faults));
  return { wrong_files: outcome.wrong, failed: outcome.failed.length, fetched_of_file: outcome.fetched };
}

async function cacheKills({ count, seed }: Storm): Promise<Figures> {
  const { answers, hits } = await killOften(count, seed);
  return { answers, hits };
}

async function gpuLosses({ count, seed, say }: Storm): Promise<Figures | undefined> {
  if (!await findAdapter()) return undefined;
  const losses = await Losses.start(seed, say);
  try {
    while (losses.injected < count) await losses.round();
  } finally {
    await losses.end();
  }
  for (const complaint of losses.complaints) say(complaint);
  return { complaints: losses.complaints.length };
}

export const INPUTS: Readonly<Record<string, Scenario>> = {
  "bad-constraints": badConstraints,
  "constrained-crowds": constrainedCrowds,
  "model-files": modelFiles,
  pulls,
  "cache-kills": cacheKills,
  "gpu-losses": gpuLosses,
};
