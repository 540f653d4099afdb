/** Compares answers about images by seeded models with float64. */
import { assert } from "@std/assert";
import type { PromptImage } from "../../../engine/api/request.ts";
import { answer, markOf, TEXT, tierOf, withModel } from "./answering.ts";
import { Tensors } from "./exact.ts";
import { type DECODERS, exactDecoder, type Part } from "./exact_decoder.ts";
import { exactRows } from "./exact_tower.ts";
import { picture, prepared } from "./files.ts";

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

const PICTURES: Record<keyof typeof DECODERS, [number, number][]> = {
  qwen3vl: [[96, 64], [64, 64]],
  gemma3: [[112, 112], [112, 112]],
  idefics3: [[128, 64], [128, 64]],
  pixtral: [[160, 160], [160, 96]],
};

for (const tower of Object.keys(PICTURES) as (keyof typeof DECODERS)[]) {
  tierOf(tower).test(`vision: ${tower}'s answers about two images are close to float64`, async () => {
    await withModel({ tower, type: "F32", seed: 4 }, async (engine, files) => {
      const pictures = PICTURES[tower].map(([width, height], i) => picture(`${i}`, width, height));
      const images = await Promise.all(pictures.map((image) => prepared(image, files)));
      const [t, decoder] = [await Tensors.open(files.tower), await Tensors.open(files.model)];
      const rows = pictures.map((image) => exactRows(t, tower, image));
      const { prompt, parts } = conversation(markOf(engine, tower), images, rows);
      const { tokens } = await answer(engine, { prompt, images, maxTokens: 2 });
      const all = [...parts];
      for (const { token, logprob } of tokens) {
        const exact = exactDecoder(decoder, tower, all);
        assert(Math.abs(exact[token] - logprob) < 0.003, `${exact[token]} ${logprob}`);
        all.push({ token });
      }
    });
  });
}
