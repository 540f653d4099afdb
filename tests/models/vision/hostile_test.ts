/** The worker that decodes images, with images that are broken, too large or of rare kinds. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { EngineError } from "../../../engine/api/errors.ts";
import { readImage } from "../../../engine/vision/read_image.ts";
import { Random } from "../../../testing/random.ts";
import { animated, cmyk, jpeg, png, turned, webp } from "./pictures.ts";

const SIZES = {
  patch: 16,
  merged: 2,
  means: [0.5, 0.5, 0.5],
  deviations: [0.5, 0.5, 0.5],
  leastPixels: 1024,
  mostPixels: 256 * 256,
};

const DAMAGED = "it is damaged, or of a rare kind";

const read = (bytes: Uint8Array<ArrayBuffer>) => readImage({ bytes, sizes: SIZES });

/** Returns the reason why the worker refuses an image. */
async function reason(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const error = await assertRejects(() => read(bytes), EngineError);
  assertEquals(error.code, "invalid_request");
  return error.message.replace("Cannot read the image: ", "");
}

Deno.test("images: PNG, JPEG and WebP are recognized by their content", async () => {
  for (const bytes of [await png(96, 64, 1), jpeg(), webp()]) {
    const { patches: { rows, columns, values } } = await read(bytes);
    assertEquals([rows, columns, values.length], [4, 6, 3 * 96 * 64]);
    assert(values.every((value) => value >= -1 && value <= 1));
  }
});

Deno.test("images: 16 bits, grey and alpha are read, and transparent pixels are white", async () => {
  for (const kind of [0, 4, 6] as const) {
    const { patches } = await read(await png(64, 64, 1, { kind, depth: 16 }));
    assertEquals([patches.rows, patches.columns], [4, 4]);
  }
  const clear = await png(64, 64, 1, { kind: 6, transparent: true });
  assert((await read(clear)).patches.values.every((value) => value === 1));
});

Deno.test("images: reads CMYK, and only the first frame of an animation", async () => {
  for (const bytes of [cmyk(), animated()]) assertEquals((await read(bytes)).patches.rows, 2);
});

Deno.test("images: applies the EXIF orientation", async () => {
  const [plain, right] = [(await read(jpeg())).patches, (await read(turned())).patches];
  assertEquals([plain.rows, plain.columns, right.rows, right.columns], [4, 6, 6, 4]);
  // The first patch is at the top left. After the turn to the right, this patch shows the lower end of the left
  // side: green, no red.
  const [red, green] = [right.values[0], right.values[256]];
  assert(red < -0.8 && green > 0.8, `${red} ${green}`);
});

Deno.test("images: refuses decompression bombs by the dimensions in the header", async () => {
  const bomb = await reason(await png(30_000, 30_000, 1, { rows: 1 }));
  assertEquals(bomb, "it must have at most 33554432 pixels");
  const thin = await reason(await png(1, 100_000, 1));
  assertEquals(thin, "its longer side must be at most 200 times the shorter (got 1 x 100000)");
});

Deno.test("images: truncated and damaged files are refused", async () => {
  for (const whole of [await png(96, 64, 1), jpeg(), webp()]) {
    for (const share of [0.3, 0.7]) {
      const cut = whole.slice(0, Math.floor(share * whole.length));
      assertEquals(await reason(cut), DAMAGED);
    }
  }
  assertEquals(await reason(await png(64, 64, 1, { rows: 20 })), DAMAGED);
});

Deno.test("images: refuses other formats and files that are not images, and ignores bytes after an image", async () => {
  const unknown = "it must be a PNG, JPEG, WebP or GIF image";
  for (
    const text of [
      "",
      "<svg xmlns='http://www.w3.org/2000/svg'/>",
      "GIF90a\x01\x00\x01\x00",
      "%PDF-1.7",
      "BM",
    ]
  ) {
    assertEquals(await reason(new TextEncoder().encode(text)), unknown, text);
  }
  const plain = await png(64, 64, 1);
  const polyglot = new Uint8Array(await new Blob([plain, "PK\x03\x04<html>"]).arrayBuffer());
  assertEquals((await read(polyglot)).digest, (await read(await png(64, 64, 1))).digest);
});

Deno.test("images: randomly changed files cause no crash", async () => {
  const random = new Random(7);
  const [one, two, three] = [await png(32, 32, 1), jpeg(), webp()];
  for (let i = 0; i < 12; i++) {
    const bytes = [one, two, three][i % 3].slice();
    for (let n = 0; n < 8; n++) bytes[random.below(bytes.length)] = random.below(256);
    await read(bytes).catch((error) => assertEquals(error.code, "invalid_request"));
  }
});
