import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { convertCheckpoint, ConvertError } from "../../convert/convert.ts";
import {
  type CheckpointOptions,
  type TinyCheckpoint,
  tinyCheckpoint,
  writeCheckpoint,
} from "../../testing/checkpoints.ts";
import { KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import { plainDraft, plainLogProbs } from "./plain_forward.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

/*
 * Compares the kernels' results from the converted file with a plain forward pass over the checkpoint's own values in
 * its own order. One misplaced row, channel or norm makes the results unrelated.
 */

/** Maximum distances of log-probabilities. With quantised weights the kernels round activations to 8 bits. */
const LIMITS = { BF16: 0.03, MXFP4: 0.15, affine: 0.15 };
/** Maximum distance for recurrent models, whose states amplify rounding: llama.cpp differs by up to 0.29 in MXFP4. */
const RECURRENT_LIMIT = 0.25;
/** Minimum distance from another seed's answer, so that the test can detect an error. */
const UNRELATED = 0.5;

const PROMPT = [65, 66, 67, 104, 101, 32, 110, 97, 46];

for (const model of ["llama", "qwen3", "qwen3_5"] as const) {
  for (const weights of ["BF16", "MXFP4", "affine"] as const) {
    const tier = weights === "BF16" ? firstTier : fullTier;
    tier.test(`convert: ${model} in ${weights} answers like the checkpoint`, async () => {
      const options = { model, weights, layout: weights === "BF16" ? "hf" : "mlx", seed: 3 } as const;
      const expected = plain(options, PROMPT);
      const found = await converted(options, PROMPT, expected.length);
      const distance = largestDistance(expected, found);
      const limit = model === "qwen3_5" && weights === "MXFP4" ? RECURRENT_LIMIT : LIMITS[weights];
      assert(distance <= limit, `${distance.toFixed(4)}, allowed ${limit}`);
      const other = largestDistance(plain({ ...options, seed: 4 }, PROMPT), found);
      assert(other > UNRELATED, `another model is as near as ${other.toFixed(4)}`);
    });
  }
}

fullTier.test("convert: llama with YaRN answers like the checkpoint", async () => {
  const options = { model: "llama", weights: "BF16", layout: "hf", seed: 3 } as const;
  const scaling = {
    rope_type: "yarn",
    factor: 4,
    original_max_position_embeddings: 8,
    beta_fast: 2,
    beta_slow: 0.1,
  };
  const checkpoint = tinyCheckpoint(options);
  const expected = plainLogProbs("llama", checkpoint, PROMPT, scaling);
  const change = ({ config }: TinyCheckpoint) => void (config.rope_scaling = scaling);
  const found = await converted(options, PROMPT, expected.length, change);
  const distance = largestDistance(expected, found);
  assert(distance <= LIMITS.BF16, `${distance.toFixed(4)}, allowed ${LIMITS.BF16}`);
  const unscaled = largestDistance(plain(options, PROMPT), found);
  assert(unscaled > 3 * LIMITS.BF16, `the model without YaRN is as near as ${unscaled.toFixed(4)}`);
});

for (const layout of ["hf", "mlx"] as const) {
  fullTier.test(`convert: the draft layer with names of ${layout} drafts like the checkpoint`, async () => {
    const options = { model: "qwen3_5", weights: "BF16", layout, seed: 3, drafts: true } as const;
    const expected = plainDraft(tinyCheckpoint(options), PROMPT);
    const found = await convertedDraft(options, PROMPT, expected.length);
    const distance = largestDistance(expected, found);
    assert(distance <= LIMITS.BF16, `${distance.toFixed(4)}, allowed ${LIMITS.BF16}`);
    const other = largestDistance(plainDraft(tinyCheckpoint({ ...options, seed: 4 }), PROMPT), found);
    assert(other > UNRELATED, `another model is as near as ${other.toFixed(4)}`);
    // The model itself does not change.
    const answer = await converted(options, PROMPT, expected.length);
    assert(largestDistance(plain(options, PROMPT), answer) <= LIMITS.BF16);
  });
}

fullTier.test("convert: an incomplete draft layer is refused, and its remains are left out", async () => {
  const options = { model: "qwen3_5", weights: "BF16", layout: "hf", seed: 3, drafts: true } as const;
  const without = async (name: string) => {
    const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
    try {
      const checkpoint = tinyCheckpoint(options);
      assert(checkpoint.tensors.delete(name));
      await writeCheckpoint(folder, checkpoint);
      return await convertCheckpoint({ folder, out: join(folder, "out.gguf") });
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  };
  for (const part of ["pre_fc_norm_hidden", "norm", "layers.0.self_attn.q_proj", "layers.0.mlp.up_proj"]) {
    await assertRejects(() => without(`mtp.${part}.weight`), ConvertError, `mtp.${part}.weight`);
  }
  await without("mtp.fc.weight");
});

function plain(options: CheckpointOptions, tokens: readonly number[]): Float64Array {
  return plainLogProbs(options.model, tinyCheckpoint(options), tokens);
}

/** The kernels' log-probabilities of every token after the prompt, from the converted file. */
async function converted(
  options: CheckpointOptions,
  tokens: readonly number[],
  vocab: number,
  change: (checkpoint: TinyCheckpoint) => void = () => {},
): Promise<Float64Array> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    const checkpoint = tinyCheckpoint(options);
    change(checkpoint);
    await writeCheckpoint(folder, checkpoint);
    const out = join(folder, "out.gguf");
    const { refusal } = await convertCheckpoint({ folder, out });
    assertEquals(refusal, undefined);
    using model = await KernelModel.load(await Deno.readFile(out), {
      kvBlocks: 2,
      maxRows: 16,
      maxLogitRows: 1,
    });
    const probe = Array.from({ length: vocab }, (_, id) => id);
    const run = { tokens, blockTable: shuffledBlocks(0, 2), wanted: [{ probe }] };
    const [[{ probed, logSumExp }]] = await model.step([run]);
    return Float64Array.from(probed, (logit) => logit - logSumExp);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** The draft layer's log-probabilities of every token after the prompt. */
async function convertedDraft(
  options: CheckpointOptions,
  tokens: readonly number[],
  vocab: number,
): Promise<Float64Array> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    await writeCheckpoint(folder, tinyCheckpoint(options));
    const out = join(folder, "out.gguf");
    assertEquals((await convertCheckpoint({ folder, out })).refusal, undefined);
    using model = await KernelModel.loadAs(
      (file) => buildPlan(file, undefined, undefined, { drafts: true }),
      await Deno.readFile(out),
      { kvBlocks: 2, maxRows: 16, maxLogitRows: 1 },
    );
    const blockTable = shuffledBlocks(0, 2);
    const cached = tokens.length - 1;
    await model.step([{ tokens: tokens.slice(0, -1), blockTable }]);
    const wanted = [{ probe: Array.from({ length: vocab }, (_, id) => id) }];
    const [row] = await model.draft([{
      token: tokens[cached],
      cached,
      from: cached - 1,
      blockTable,
      wanted,
    }]);
    return Float64Array.from(row.probed, (logit) => logit - row.logSumExp);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns the largest distance over the twenty most probable tokens. */
function largestDistance(expected: Float64Array, found: Float64Array): number {
  const best = [...expected.keys()].sort((a, b) => expected[b] - expected[a]).slice(0, 20);
  return Math.max(...best.map((id) => Math.abs(expected[id] - found[id])));
}
