import { assert, assertEquals } from "@std/assert";
import { decodeBase64 } from "@std/encoding/base64.js";
import { normalized, relevance } from "../../engine/answers/rows.ts";
import { POOLING_KINDS } from "../../engine/gguf/hparams/pooling.ts";
import { digest } from "./parity_cases.ts";
import { SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import {
  TEXT_MODELS,
  TEXT_TABLE_URL,
  type TextModel,
  type TextTable,
  tokensOf,
} from "./text_parity_cases.ts";
import { withTextModel } from "../../testing/text_model.ts";
import { everyNth, fullTier } from "../../testing/tier.ts";

/*
 * Compares vectors and scores with llama.cpp's and exact ones. With float weights they must match llama.cpp's within
 * its rounding. If both round activations to 8 bits, compy's must be nearer to the exact ones.
 */

const TABLE: TextTable = JSON.parse(await Deno.readTextFile(TEXT_TABLE_URL));
/** Limits for F32 models against llama.cpp: 1 - cosine, and a difference of scores. */
const NEAR = 1e-5;
const NEAR_SCORE = 1e-3;

const floatsOf = (packed: string | number) => new Float32Array(decodeBase64(packed as string).buffer);

/** Returns 1 - cosine of vectors of length 1. */
function angle(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, x, i) => sum + (x - b[i]) ** 2, 0) / 2;
}

/** Distances between two sets of answers: 1 - cosine of vectors, or the difference of scores. */
function distances(ours: readonly (Float32Array | number)[], others: readonly (string | number)[]): number[] {
  return ours.map((answer, i) =>
    typeof answer === "number" ? Math.abs(answer - (others[i] as number)) : angle(answer, floatsOf(others[i]))
  );
}

async function answersOf(model: TextModel): Promise<(Float32Array | number)[]> {
  let answers: (Float32Array | number)[] = [];
  const { architecture, types } = model.options;
  await withTextModel(
    model.options.texts!,
    { architecture, types, seed: model.options.seed },
    async (engine) => {
      const { rows } = await engine.embed({ inputs: tokensOf(model, engine) });
      answers = rows.map((row) => model.kind === "rank" ? relevance(row) : normalized(row));
    },
  );
  return answers;
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

fullTier.test("text parity: the digests in the table of exact answers match the test's models", async () => {
  for (const { name, options } of TEXT_MODELS) {
    assertEquals(
      await digest(synthesize(options)),
      TABLE[name].sha256,
      `${name}: run deno task parity:texts`,
    );
  }
});

const isEncoder = ({ options }: TextModel) => SYNTH_MODELS[options.architecture].encoder ?? false;
const ROUNDED = TEXT_MODELS.filter(({ options }) => options.types[0] !== "F32");
/** Models that are only compared as a whole: on a single text, chance decides whether compy or llama.cpp is nearer. */
const ROUNDED_ENCODERS = ROUNDED.filter(isEncoder);
const ROUNDED_DECODERS = ROUNDED.filter((model) => !isEncoder(model));
/** Limit for the geometric mean, over all texts, of compy's distance from the exact answer divided by llama.cpp's. */
const AS_NEAR = 1;
/** Distances of llama.cpp's scores from exact ones. */
const NEAR_ROUNDED_SCORE = 5e-3;

fullTier.test("text parity: encoders in Q8_0 are nearer to exact than llama.cpp", async () => {
  const ratios: number[] = [];
  for (const model of ROUNDED_ENCODERS) {
    const { exact, llamaCpp } = TABLE[model.name];
    const ours = distances(await answersOf(model), exact);
    if (model.kind === "rank") {
      assert(Math.max(...ours) <= NEAR_ROUNDED_SCORE, `${model.name}: ${ours}`);
      continue;
    }
    const theirs = distances(llamaCpp.map(floatsOf), exact);
    ratios.push(...ours.map((distance, i) => Math.log(distance / theirs[i])));
  }
  const mean = Math.exp(sum(ratios) / ratios.length);
  assert(mean <= AS_NEAR, `${mean} times as far as llama.cpp`);
});

for (const model of everyNth(3, TEXT_MODELS.filter(({ options }) => options.types[0] === "F32"))) {
  Deno.test(`text parity: ${model.name} matches llama.cpp`, async () => {
    const { exact, llamaCpp } = TABLE[model.name];
    const ours = await answersOf(model);
    const far = Math.max(...distances(ours, llamaCpp), ...distances(ours, exact));
    const limit = model.kind === "rank" ? NEAR_SCORE : NEAR;
    assert(far <= limit, `${far} is more than ${limit}`);
  });
}

for (const kind of POOLING_KINDS) {
  const models = ROUNDED_DECODERS.filter((model) => model.kind === kind);
  fullTier.test(`text parity: Q8_0 decoders with ${kind} are nearer to exact than llama.cpp`, async () => {
    let [us, them] = [0, 0];
    for (const model of models) {
      const { exact, llamaCpp } = TABLE[model.name];
      const theirs = llamaCpp.map((answer) => typeof answer === "number" ? answer : floatsOf(answer));
      us += sum(distances(await answersOf(model), exact));
      them += sum(distances(theirs, exact));
    }
    assert(us <= them, `off by ${us} in sum, llama.cpp by ${them}`);
  });
}
