import { assertRejects } from "@std/assert";
import { readDflash } from "../../engine/architectures/drafters/dflash.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { measureModel } from "../../engine/load/load.ts";
import { synthesizeDflash } from "../../testing/synth/drafters/dflash.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { withFiles } from "./drafter_files.ts";

const VOCABULARY = 500;
const LAYERS = 4;
const DFLASH = { type: "Q8_0", seed: 1, layers: [1, LAYERS], mask: 498 } as const;
const PASSES = [
  [{ mask: VOCABULARY }, "must be below 500 (got 500)"],
  [{ rows: 1 }, "must be at least 2 (got 1)"],
  [{ window: 8, slides: [true] }, "an array of 2 booleans"],
] as const;
const RELATIVES = { "markov_w1.weight": "DSpark", "selector_hidden.weight": "DFlash2" };

Deno.test("dflash: refuses drafters with invalid keys, and refuses DSpark and DFlash2 by name", async () => {
  const model = synthesize({ architecture: "llama", types: ["Q8_0"], seed: 1, layers: LAYERS });
  for (const [options, message] of PASSES) {
    await withFiles(model, synthesizeDflash(model, { ...DFLASH, ...options }), async (model, draft) => {
      await assertRejects(() => measureModel({ model, draft }), Error, message);
    });
  }
  const file = parseGguf(synthesizeDflash(model, DFLASH));
  for (const [tensor, name] of Object.entries(RELATIVES)) {
    const tensors = new Map(file.tensors).set(tensor, file.tensors.get("fc.weight")!);
    await assertRejects(
      () => readDflash({ ...file, tensors }, parseGguf(model)),
      GgufError,
      `is a ${name} drafter's; compy supports DFlash and EAGLE-3 drafters`,
    );
  }
});
