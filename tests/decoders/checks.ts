/** What every decoder must do, as tests. Those with tests of their own for it are not among them. */
import { assert, assertEquals } from "@std/assert";
import { bits, LIMITS, mixedModel, PROMPT } from "../determinism.ts";
import { answersOf } from "../engine_crowd.ts";
import { instructionSets, KernelModel } from "../kernel_model.ts";
import { maxOfTopFive, wrongChoices } from "../parity_judge.ts";
import type { Architecture } from "../synth/synth.ts";
import { isFullTier } from "../tier.ts";
import { judgeFormat } from "./judge.ts";
import { decodersOfTier, type Kind } from "./kinds.ts";

const [isa] = instructionSets();
/** Tokens of the prompt that is cut. The short one fills several KV blocks and a window, too. */
const CUT_PROMPT = isFullTier ? PROMPT : 80;

/** Of the five most likely tokens in F32: from the exact pass that rounds keys and values as the cache does, and from the one that does not. */
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
  assertEquals(await bits(one, { prompt, chunk: 1 }), whole);
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

/** Registers the tests of all decoders of a kind that this tier takes. */
export async function testDecoders(kind: Kind): Promise<void> {
  const decoders = (await decodersOfTier()).filter((decoder) => decoder.kind === kind);
  for (const { architecture } of decoders) {
    Deno.test(`${architecture}: exact in F32`, () => checkFloats(architecture));
    Deno.test(`${architecture}: cuts and company change no bit of the logits`, () => checkCuts(architecture));
    Deno.test(
      `${architecture}: alone, in a crowd, with a cached prefix: the same answers to the bit`,
      () => checkCrowd(architecture),
    );
  }
}
