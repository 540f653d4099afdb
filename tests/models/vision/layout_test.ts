/** Compares the tokens of images in prompts with the tokens of the text that the family's processor writes. */
import { assertEquals } from "@std/assert";
import { describeModel } from "../../../engine/load/describe.ts";
import { KINDS } from "../../../engine/vision/kinds.ts";
import { placeImages, promptLength } from "../../../engine/schedule/images.ts";
import { picture, prepared, type TowerName, TOWERS, withFiles } from "./files.ts";

const rows = (token: string, count: number) => token.repeat(count);
const fake = "<fake_token_around_image>";

/** For each kind of tower: an image's width and height, and the processor's text for the image. */
const TEXTS: { readonly [Name in TowerName]?: readonly [width: number, height: number, text: string] } = {
  qwen3vl: [96, 64, rows("<|image_pad|>", 6)],
  gemma3: [50, 90, `\n\n<start_of_image>${rows("<image_soft_token>", 16)}<end_of_image>\n\n`],
  gemma4: [72, 48, `<|image>${rows("<pad>", 6)}<image|>`],
  pixtral: [
    90,
    64,
    `${rows("[IMG]", 3)}[IMG_BREAK]${rows("[IMG]", 3)}[IMG_END]`,
  ],
  idefics3: [
    128,
    60,
    `${fake}<row_1_col_1>${rows("<image>", 4)}${fake}<row_1_col_2>${rows("<image>", 4)}\n\n` +
    `${fake}<global-img>${rows("<image>", 4)}${fake}`,
  ],
};

for (const [tower, [width, height, text]] of Object.entries(TEXTS)) {
  Deno.test(`images: an image for ${tower} has the tokens of its processor's text`, async () => {
    await withFiles({ tower: tower as TowerName, type: "Q8_0", seed: 1 }, async (files) => {
      const { tokenizer } = await describeModel({ model: files.model });
      const encode = (words: string) => tokenizer.encode(words, { parseSpecial: true });
      const { mark } = TOWERS[tower as TowerName];
      const image = await prepared(picture("layout", width, height), files);
      for (const words of ["a\nIMAGE\nb", "\n\nIMAGE", "IMAGEIMAGEc\n", "IMAGE\n\n\nIMAGE\n"]) {
        const images = words.split("IMAGE").slice(1).map(() => image);
        const prompt = encode(words.replaceAll("IMAGE", mark));
        const expected = encode(words.replaceAll("IMAGE", text));
        const { tokens, placed } = placeImages(prompt, images, tokenizer);
        assertEquals(tokens, expected, JSON.stringify(words));
        assertEquals(promptLength({ prompt, images }, tokenizer), expected.length);
        for (const { at } of placed) assertEquals(tokens.slice(at, at + image.tokens.length), image.tokens);
      }
    });
  });
}

Deno.test("images: an image of Idefics 3 that fits one tile has no tiles", async () => {
  await withFiles({ tower: "idefics3", type: "Q8_0", seed: 1 }, async (files) => {
    const { tokenizer } = await describeModel({ model: files.model });
    const image = await prepared(picture("layout", 1, 1), files); // scaled to 128 x 128
    assertEquals(image.runs.length, 5);
    assertEquals(tokenizer.decode(image.tokens, { special: true }).split("<global-img>").length, 2);
  });
});

Deno.test("images: takes the longest side of Pixtral's images from the file, up to 64 tokens", () => {
  const { scaling } = KINDS.get("pixtral")!;
  const [published, larger] = [1540, 4096].map((side) => scaling({ side: () => side }, 28));
  assertEquals([published, larger], [{ to: "longest", longest: 1540 }, { to: "longest", longest: 64 * 28 }]);
});
