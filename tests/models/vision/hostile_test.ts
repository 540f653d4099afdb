/** The worker that decodes images, with images that are broken, too large or of rare kinds. */
import { assert, assertEquals, assertInstanceOf, assertRejects } from "@std/assert";
import { EngineError } from "../../../engine/api/errors.ts";
import { decodeImage, Refusal } from "../../../engine/vision/decode.ts";
import { useDecoders } from "../../../engine/vision/decoders.ts";
import type { ImageSizes } from "../../../engine/vision/patches.ts";
import { readImage } from "../../../engine/vision/read_image.ts";
import { Random } from "../../../testing/random.ts";
import { jpeg, png, webp } from "./pictures.ts";

const SIZES: ImageSizes = {
  patch: 16,
  merged: 2,
  means: [0.5, 0.5, 0.5],
  deviations: [0.5, 0.5, 0.5],
  scaling: { to: "pixels", least: 1024, most: 256 * 256 },
};

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

Deno.test("images: says why an image is refused", async () => {
  const cases: [string, Uint8Array<ArrayBuffer>][] = [
    ["it must have at most 33554432 pixels", await png(30_000, 30_000, 1, { rows: 1 })],
    ["its longer side must be at most 200 times the shorter (got 1 x 100000)", await png(1, 100_000, 1)],
    ["it is damaged, or of a rare kind", await png(64, 64, 1, { rows: 20 })],
    ["it must be a PNG, JPEG, WebP or GIF image", new TextEncoder().encode("<svg/>")],
  ];
  for (const [expected, bytes] of cases) assertEquals(await reason(bytes), expected);
});

Deno.test("images: ignores bytes after an image", async () => {
  const polyglot = new Uint8Array(await new Blob([await png(64, 64, 1), "PK\x03\x04<html>"]).arrayBuffer());
  assertEquals((await read(polyglot)).digest, (await read(await png(64, 64, 1))).digest);
});

Deno.test("images: randomly changed files cause no crash", async () => {
  const random = new Random(7);
  const images = [await png(32, 32, 1), jpeg(), webp()];
  for (let i = 0; i < 60; i++) {
    const bytes = images[i % 3].slice();
    for (let n = 0; n < 8; n++) bytes[random.below(bytes.length)] = random.below(256);
    await decodeImage(bytes).catch((error) => assertInstanceOf(error, Refusal));
  }
});

Deno.test("images: a tenant's image does not wait for the images of another tenant", async () => {
  const slow = await png(1200, 1200, 1, { transparent: true });
  const small = await png(64, 64, 1);
  const order: string[] = [];
  const done = async (name: string, bytes: Uint8Array, tenant: string) => {
    await readImage({ bytes: bytes.slice(), sizes: SIZES }, { tenant });
    order.push(name);
  };
  const release = useDecoders();
  await Promise.all([done("", small, "a"), done("", small, "b")]); // now two decoders are ready
  await Promise.all([
    done("first", slow, "a"),
    done("second", slow, "a"),
    done("third", slow, "a"),
    done("small", small, "b"),
  ]);
  release();
  assert(order.indexOf("small") < order.indexOf("second"), order.join());
});

Deno.test("images: a request that has ended does not wait for its image", async () => {
  const abort = new AbortController();
  const bytes = await png(1200, 1200, 1, { transparent: true });
  const reads = [1, 2].map(() => readImage({ bytes: bytes.slice(), sizes: SIZES }, { signal: abort.signal }));
  setTimeout(() => abort.abort(new Error("left")), 20);
  for (const read of reads) await assertRejects(() => read, Error, "left");
  await readImage({ bytes: await png(64, 64, 1), sizes: SIZES }); // waits for the decoder
});
