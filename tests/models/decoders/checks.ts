/** Tests that every decoder must pass. Decoders with separate tests are excluded. */
import { assert, assertEquals } from "@std/assert";
import { bits, LIMITS, mixedModel, PROMPT } from "../determinism.ts";
import { answersOf } from "../engine_crowd.ts";
import { instructionSets, KernelModel } from "../../../testing/kernel_model.ts";
import { maxOfTopFive, wrongChoices } from "../parity_judge.ts";
import { onKernels } from "../preemption_scenario.ts";
import type { Architecture } from "../../../testing/synth/synth.ts";
import { isFullTier } from "../../../testing/tier.ts";
import { judgeFormat } from "./judge.ts";
import { type Decoder, decodersOfTier, type Kind, kindsOfTier, withAllOps } from "./kinds.ts";

const [isa] = instructionSets();
/** Tokens of the prompt that is cut into chunks. Even the short one fills several KV blocks and a window. */
const CUT_PROMPT = isFullTier ? PROMPT : 80;

/**
 * Maximum distances in F32 over the five most likely tokens: from the exact pass with keys and values rounded like the
 * cache, and from the unrounded one.
 */
const ROUNDED_LIMIT = 0.003;
const EXACT_LIMIT = 0.02;

async function checkFloats(architecture: Architecture): Promise<void> {
  const judged = await judgeFormat(architecture, "F32");
  const rounded = maxOfTopFive(judged, "rounded");
  assert(
    rounded <= ROUNDED_LIMIT,
    `F32, keys and values rounded as they are kept: up to ${rounded} off, allowed ${ROUNDED_LIMIT}`,
  );
  const exact = maxOfTopFive(judged);
  assert(exact <= EXACT_LIMIT, `F32: up to ${exact} off, allowed ${EXACT_LIMIT}`);
  assertEquals(wrongChoices(judged, () => 2 * EXACT_LIMIT), []);
}

async function checkCuts(architecture: Architecture): Promise<void> {
  const bytes = mixedModel(architecture, ["Q8_0", "F16", "Q4_K"]);
  using one = await KernelModel.load(bytes, LIMITS, { threads: 1 });
  const prompt = CUT_PROMPT;
  const whole = await bits(one, { prompt, chunk: prompt });
  // The tokens after the prompt come one by one in either tier.
  assertEquals(await bits(one, { prompt, chunk: isFullTier ? 1 : 5 }), whole);
  assertEquals(await bits(one, { prompt, chunk: 27, others: 7, range: 4 }), whole);
  if (!isFullTier) return;
  using several = await KernelModel.load(bytes, LIMITS, { threads: 3 });
  assertEquals(await bits(several, { prompt, chunk: 64, others: 7, range: 2 }), whole);
}

async function checkCrowd(architecture: Architecture): Promise<void> {
  const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(model, mixedModel(architecture, ["Q8_0"]));
    await answersOf(model, { isa, threads: 2 });
  } finally {
    await Deno.remove(model);
  }
}

async function checkPreemption(architecture: Architecture, kind: Kind): Promise<void> {
  // Sequences keep fewer blocks where layers have windows, so memory is short less often.
  const isWindowed = kind.startsWith("windowed");
  const requests = isFullTier ? (isWindowed ? 90 : 60) : (isWindowed ? 45 : 30);
  const crowd = { requests, company: 24, seed: 1 };
  const preemptions = await onKernels(architecture, "f16", crowd, { layers: isFullTier ? 4 : 2 });
  assert(preemptions > (isFullTier ? 3 : 0), `only ${preemptions} preemptions`);
}

type Check = (architecture: Architecture, kind: Kind) => Promise<void>;

function register(decoders: readonly Decoder[], kinds: readonly Kind[], what: string, check: Check): void {
  for (const { architecture, kind } of decoders) {
    if (kinds.includes(kind)) Deno.test(`${architecture}: ${what}`, () => check(architecture, kind));
  }
}

/** Returns all decoders; in the first tier those that together have every op. */
async function ofEachOp(): Promise<Decoder[]> {
  const decoders = await decodersOfTier();
  return isFullTier ? decoders : withAllOps(decoders);
}

/** Registers these tests for decoders of the given kinds, as far as this tier includes them. */
export async function testFloats(...kinds: readonly Kind[]): Promise<void> {
  register(await ofEachOp(), kinds, "exact in F32", checkFloats);
}

export async function testCuts(...kinds: readonly Kind[]): Promise<void> {
  register(await ofEachOp(), kinds, "cuts and company change no bit of the logits", checkCuts);
}

export async function testCrowds(...kinds: readonly Kind[]): Promise<void> {
  const what = "alone, in a crowd, with a cached prefix: the same answers to the bit";
  register(await ofEachOp(), kinds, what, checkCrowd);
}

export async function testPreemption(...kinds: readonly Kind[]): Promise<void> {
  register(
    await kindsOfTier(),
    kinds,
    "preempted requests are answered as alone, to the bit",
    checkPreemption,
  );
}
