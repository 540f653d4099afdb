/** Compares answers about images by seeded models with float64. */
import { assert } from "@std/assert";
import type { PromptImage } from "../../../engine/api/request.ts";
import { tokenOf } from "../../../engine/vision/image_text.ts";
import { fullTier } from "../../../testing/tier.ts";
import { answer, markOf, TEXT, tierOf, withModel } from "./answering.ts";
import { Tensors } from "./exact.ts";
import { type DECODERS, exactDecoder, type Part } from "./exact_decoder.ts";
import { exactGemma4Decoder } from "./gemma4/exact_decoder.ts";
import { exactRows } from "./exact_tower.ts";
import { picture, prepared } from "./files.ts";

const GEMMA4 = { gemma4: { shared: 2, perLayer: 256 }, gemma4_31b: { shared: 0, perLayer: 0 } };

/** Returns a prompt with two images between texts, for the engine and for the float64 decoder. */
function conversation(mark: number, images: readonly PromptImage[], rows: readonly Float64Array[][][]) {
  const prompt = [...TEXT, mark, ...TEXT.toReversed(), mark, ...TEXT];
  let next = 0;
  const parts = prompt.flatMap((token): Part[] => {
    if (token !== mark) return [{ token }];
    const image = next++;
    const { columns, tokens, runs, lines } = images[image];
    const isRow = (at: number) => runs.some(({ first, count }) => at >= first && at < first + count);
    const around = Array<Part>(lines / 2).fill({ token: 256 }); // two line ends are one token
    let row = 0;
    const own = tokens.map((token, at): Part => {
      if (!isRow(at)) return { token };
      const index = row++;
      const place = [Math.floor(index / columns), index % columns] as const;
      return { image, place, rows: rows[image].map((part) => part[index]) };
    });
    return [...around, ...own, ...around];
  });
  return { prompt, parts };
}

/** Towers whose decoders have a float64 pass. */
type Decoder = keyof typeof DECODERS | "gemma4" | "gemma4_31b";

const PICTURES: Record<Decoder, [number, number][]> = {
  qwen3vl: [[96, 64], [64, 64]],
  gemma3: [[112, 112], [112, 112]],
  gemma4: [[72, 48], [48, 48]],
  gemma4_31b: [[48, 80], [64, 48]],
  idefics3: [[128, 64], [128, 64]],
  pixtral: [[160, 160], [160, 96]],
};

for (const tower of Object.keys(PICTURES) as Decoder[]) {
  // The first tier tests Gemma 4's decoder in answers_test.ts only.
  const { test } = tower === "gemma4" ? fullTier : tierOf(tower);
  test(`vision: ${tower}'s answers about two images are close to float64`, async () => {
    await withModel({ tower, type: "F32", seed: 4 }, async (engine, files) => {
      const pictures = PICTURES[tower].map(([width, height], i) => picture(`${i}`, width, height));
      const images = await Promise.all(pictures.map((image) => prepared(image, files)));
      const [t, decoder] = [await Tensors.open(files.tower), await Tensors.open(files.model)];
      const rows = pictures.map((image) => exactRows(t, tower, image));
      const { prompt, parts } = conversation(markOf(engine, tower), images, rows);
      const { tokens } = await answer(engine, { prompt, images, maxTokens: 2 });
      const all = [...parts];
      const pass = tower === "gemma4" || tower === "gemma4_31b"
        ? exactGemma4Decoder.bind(undefined, decoder, {
          ...GEMMA4[tower],
          pad: tokenOf(engine.tokenizer, "<pad>")!,
        })
        : exactDecoder.bind(undefined, decoder, tower);
      for (const { token, logprob } of tokens) {
        const exact = pass(all);
        assert(Math.abs(exact[token] - logprob) < 0.003, `${exact[token]} ${logprob}`);
        all.push({ token });
      }
    });
  });
}
