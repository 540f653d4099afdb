/** Tests the image decoders with generated images of many kinds. Every image gets its own instance of the module. */
import { assert, assertEquals } from "@std/assert";
import { decodeImage, Refusal } from "../../../engine/vision/decode.ts";
import { everyNth } from "../../../testing/tier.ts";
import type { Outcome } from "./kinds/bytes.ts";
import { withOrientation } from "./kinds/jpeg.ts";
import { kindsOfPictures } from "./kinds/kinds.ts";

/** Maximum memory of the module (tools/build_wasm.ts). */
const MOST_MEMORY = 2 ** 30;

Deno.test("images: 200 kinds of good and bad images are read or refused, in bounded memory and time", async () => {
  const kinds = kindsOfPictures();
  assert(kinds.length >= 200, `${kinds.length}`);
  assertEquals(new Set(kinds.map(([name]) => name)).size, kinds.length);
  const wrong: string[] = [];
  for (const [name, bytes, expected] of everyNth(7, kinds)) {
    const begun = performance.now();
    const outcome = await decodeImage(bytes).then(({ width, height, pixels }): Outcome => {
      if (pixels.length !== 3 * width * height) wrong.push(`${name}: ${pixels.length} bytes`);
      if (pixels.buffer.byteLength > MOST_MEMORY) {
        wrong.push(`${name}: ${pixels.buffer.byteLength} bytes of memory`);
      }
      return [width, height];
    }, (error): Outcome => {
      if (!(error instanceof Refusal)) throw new Error(name, { cause: error });
      return "refused";
    });
    if (expected !== "either" && String(outcome) !== String(expected)) wrong.push(`${name}: ${outcome}`);
    const ms = performance.now() - begun;
    if (ms > 20_000) wrong.push(`${name}: ${ms} ms`);
  }
  assertEquals(wrong, []);
});

Deno.test("images: each EXIF orientation moves the darkest corner to the right place", async () => {
  const corners = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(async (orientation) => {
    const { width, height, pixels } = await decodeImage(withOrientation(orientation));
    // In the file's picture, red grows to the right and green downwards.
    const light = (x: number, y: number) => pixels[3 * (y * width + x)] + pixels[3 * (y * width + x) + 1];
    const [right, bottom] = [width - 1, height - 1];
    const all = { "top left": light(0, 0), "top right": light(right, 0), "bottom left": light(0, bottom) };
    const lights = { ...all, "bottom right": light(right, bottom) };
    return Object.entries(lights).toSorted(([, a], [, b]) => a - b)[0][0];
  }));
  const order = ["top left", "top right", "bottom right", "bottom left"];
  assertEquals(corners, [...order, ...order]);
});
