import { assert } from "@std/assert";
import { readPlan } from "../../engine/architectures/registry.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { readPooling } from "../../engine/gguf/hparams/pooling.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { encodePlan } from "../../engine/plan/encode.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { engineSize } from "../../engine/load/size.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { KernelError } from "../../ffi/library.ts";
import { kindsOfTier } from "./decoders/kinds.ts";
import { spoiled, Watched } from "./hostile.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { type Architecture, SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { isFullTier } from "../../testing/tier.ts";

/*
 * Hostile files. In a model of each family, every key and tensor is corrupted in every way that the format allows; keys
 * that the reader asks for may also be missing. Each file must load, or be refused with a message that names a key or
 * tensor. Other errors and long delays are failures.
 */

const SLOWEST_MS = 2000;

async function load(file: GgufFile) {
  const plan = await readPlan(file, readPooling(file));
  engineSize(plan, { contextLength: 64, parallel: 1 });
  createTokenizer(file.metadata);
  return plan;
}

const LIMITS = { maxRows: 16, maxLogitRows: 16, kvBlocks: 8 };

/** Computes a few tokens with a file's plan: an accepted plan must run, with any result. */
class Runs implements Disposable {
  readonly #models = new Map<string, KernelModel>();
  readonly #done = new Set<string>();

  /** Runs a step. Most corrupted keys do not change the plan, so equal programs run only once. */
  async step(file: GgufFile, plan: Plan): Promise<void> {
    const tensors = JSON.stringify(plan.tensors);
    const told = tensors + encodePlan(plan, LIMITS).toBase64();
    if (this.#done.has(told)) return;
    const known = this.#models.get(tensors);
    const model = known ?? await KernelModel.open(file, plan, LIMITS, { threads: 1 });
    this.#models.set(tensors, model);
    if (known) await known.compile(plan, LIMITS);
    await model.step([{ tokens: [1, 2, 3], blockTable: Int32Array.of(0, 1), wanted: [{ candidates: 2 }] }]);
    this.#done.add(told);
  }

  [Symbol.dispose](): void {
    for (const model of this.#models.values()) model[Symbol.dispose]();
  }
}

/** Loads a file, and computes a few tokens if `runs` is given. Returns the time in milliseconds. */
async function refusedOrLoaded(what: string, file: GgufFile, runs?: Runs): Promise<number> {
  const start = performance.now();
  try {
    const plan = await load(file);
    await runs?.step(file, plan);
  } catch (error) {
    if (error instanceof KernelError) return performance.now() - start;
    if (!(error instanceof GgufError)) throw new Error(what, { cause: error });
    assert(/\b(key|tensor) "/.test(error.message), `${what}: refused without a name: ${error.message}`);
  }
  return performance.now() - start;
}

const ALL = Object.keys(SYNTH_MODELS) as Architecture[];
/** The first tier tests one small decoder of each of four kinds, and an encoder. */
const TAKEN = isFullTier ? ALL : [
  ...(await kindsOfTier()).filter(({ kind }) => kind !== "recurrent").slice(0, 3)
    .map(({ architecture }) => architecture),
  "bert" as const,
];

for (const architecture of TAKEN) {
  Deno.test(`${architecture}: loads or refuses a file with a corrupted key or tensor, and names it when it refuses`, async () => {
    const path = await Deno.makeTempFile({ prefix: "hostile-", suffix: ".gguf" });
    try {
      await Deno.writeFile(path, synthesize({ architecture, types: ["Q8_0"], seed: 1 }));
      const sound = await openGguf(path);
      const watched = new Watched(sound.metadata);
      await load({ ...sound, metadata: watched });
      // hostile_vocabularies_test.ts covers tokenizers.
      const keys = [...new Set([...sound.metadata.entries.keys(), ...watched.asked])]
        .filter((key) => !key.startsWith("tokenizer."));
      using all = new Runs();
      for (const [what, file] of spoiled(sound, keys)) {
        const computes = !SYNTH_MODELS[architecture].encoder &&
          what.startsWith(sound.metadata.getString("general.architecture"));
        const ms = await refusedOrLoaded(what, file, computes ? all : undefined);
        if (ms <= SLOWEST_MS) continue;
        // The time is measured again, because other processes may have used the cores.
        using anew = new Runs();
        const again = await refusedOrLoaded(what, file, computes ? anew : undefined);
        assert(again < SLOWEST_MS, `${what} took ${ms} ms, and so long again`);
      }
    } finally {
      await Deno.remove(path);
    }
  });
}
