import { assert } from "@std/assert";
import { readDflash } from "../../engine/architectures/drafters/dflash.ts";
import { readEagle3 } from "../../engine/architectures/drafters/eagle3.ts";
import { readPlan } from "../../engine/architectures/registry.ts";
import { EngineError } from "../../engine/api/errors.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { planIn } from "../../engine/load/drafters/fit.ts";
import { openGemma4Assistant } from "../../engine/load/drafters/gemma4_assistant.ts";
import { openRowDrafter } from "../../engine/load/drafters/row_drafter.ts";
import type { OpenDrafter, OpenedDrafter } from "../../engine/load/drafters/types.ts";
import { engineSize } from "../../engine/load/size.ts";
import { encodePlan } from "../../engine/plan/encode.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { synthesizeDflash } from "../../testing/synth/drafters/dflash.ts";
import { synthesizeEagle3 } from "../../testing/synth/drafters/eagle3.ts";
import { synthesizeGemma4Assistant } from "../../testing/synth/drafters/gemma4_assistant.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";
import { withFiles } from "./drafter_files.ts";
import { spoiled, Watched } from "./hostile.ts";

/*
 * Hostile drafters. Every key and tensor of a drafter's file is corrupted. Each file must be opened, or be refused with
 * a message that names the drafter's file. A file with a corrupted key must also draft if it is opened.
 */

const SLOWEST_MS = 2000;
const LIMITS = { maxRows: 16, maxLogitRows: 16, kvBlocks: 8 };
const COMMON = { type: "Q8_0", seed: 1 } as const;
const ROWS = { ...COMMON, layers: [1, 2, 4], columns: 128, tokens: [5, 6, 7, 8] } as const;
const PASS = { mask: 498, window: 40, slides: [true, false], rows: 8, causal: false } as const;
const [LLAMA, GEMMA4] = (["llama", "gemma4"] as const).map((architecture) =>
  synthesize({ architecture, types: ["Q8_0"], seed: 1, layers: 4 })
);

type Kind = readonly [model: Uint8Array, drafter: Uint8Array, open: OpenDrafter];
const KINDS: Readonly<Record<string, Kind>> = {
  dflash: [
    LLAMA,
    synthesizeDflash(LLAMA, { ...ROWS, ...PASS }),
    (file, model) => openRowDrafter(file, model, readDflash),
  ],
  eagle3: [
    LLAMA,
    synthesizeEagle3(LLAMA, { ...ROWS, normBeforeFc: true }),
    (file, model) => openRowDrafter(file, model, readEagle3),
  ],
  "gemma4-assistant": [GEMMA4, synthesizeGemma4Assistant(GEMMA4, COMMON), openGemma4Assistant],
};

/** Opens a drafter and builds the plan. */
async function load(file: GgufFile, model: GgufFile, open: OpenDrafter) {
  const opened = await open(file, model);
  const plan = await planIn(opened, readPlan(opened.joined, undefined, { drafter: opened.description }));
  engineSize(plan, { contextLength: 64, parallel: 1, drafts: true });
  return { opened, plan };
}

/** Computes a step of three tokens and a draft. */
async function draft({ joined, description }: OpenedDrafter, plan: Plan): Promise<void> {
  const { block, onePosition } = description;
  using model = await KernelModel.open(joined, plan, LIMITS, { threads: 1 });
  const blockTable = Int32Array.of(0, 1);
  await model.step([{ tokens: [1, 2, 3], blockTable, wanted: [{ candidates: 2 }] }]);
  const wanted = [{ candidates: 1 }];
  if (block) {
    return void await model.draftBlocks([{ tokens: [4, block.mask], cached: 3, blockTable, wanted }]);
  }
  const place = onePosition ? { cached: 2, position: 3 } : { cached: 3 };
  await model.draft([{ token: 4, ...place, from: 2, blockTable, wanted }]);
}

for (const [kind, [model, drafter, open]] of Object.entries(KINDS)) {
  fullTier.test(`${kind}: opens or refuses a file with a corrupted key or tensor, and names the file when it refuses`, () =>
    withFiles(model, drafter, async (modelPath, path) => {
      const [of, sound] = [await openGguf(modelPath), await openGguf(path)];
      const watched = new Watched(sound.metadata);
      await load({ ...sound, metadata: watched }, of, open);
      // hostile_vocabularies_test.ts covers tokenizers.
      const keys = [...new Set([...sound.metadata.entries.keys(), ...watched.asked])]
        .filter((key) => !key.startsWith("tokenizer.") || key.includes("mask"));
      // Most corrupted keys do not change the plan, so equal programs run only once.
      const done = new Set<string>();
      for (const [what, file] of spoiled(sound, keys)) {
        const start = performance.now();
        try {
          const { opened, plan } = await load(file, of, open);
          const program = JSON.stringify(plan.tensors) + encodePlan(plan, LIMITS).toBase64();
          if (keys.includes(what.split(" ")[0]) && !done.has(program)) await draft(opened, plan);
          done.add(program);
        } catch (error) {
          const isRefusal = error instanceof GgufError || error instanceof EngineError;
          if (!isRefusal) throw new Error(what, { cause: error });
          assert(error.message.includes(path), `${what}: refused without the file: ${error.message}`);
          const names = error instanceof EngineError || /\b(key|tensor) "/.test(error.message);
          assert(names, `${what}: refused without a name: ${error.message}`);
        }
        const ms = performance.now() - start;
        assert(ms < SLOWEST_MS, `${what} took ${ms} ms`);
      }
    }));
}
