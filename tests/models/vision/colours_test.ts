/** Tests colour profiles of images. */
import { assert, assertEquals } from "@std/assert";
import { decodeImage } from "../../../engine/vision/decode.ts";
import { big, utf8 } from "./kinds/bytes.ts";
import { segment, WIDE, withSegments } from "./kinds/jpeg.ts";
import { PLAIN, whole } from "./kinds/png.ts";
import {
  ADOBE_RGB,
  type Colours,
  DISPLAY_P3,
  grayInSrgb,
  inPng,
  inSrgb,
  profileOf,
  SRGB,
} from "./kinds/profiles.ts";
import { canvas, riff, webpOf } from "./kinds/webp.ts";
import { jpeg, webp } from "./pictures.ts";

/** For each kind of file: returns the image without and with the profile. */
const FILES: Readonly<
  Record<string, (profile: Uint8Array) => readonly [plain: Uint8Array, given: Uint8Array]>
> = {
  PNG: (profile) => [whole(PLAIN), whole(PLAIN, inPng(profile))],
  JPEG: (profile) => [jpeg(), withSegments(segment(0xe2, utf8("ICC_PROFILE\0\x01\x01"), profile))],
  WebP: (profile) => [webp(), webpOf(canvas(...WIDE, 0x20), riff("ICCP", profile), webp().subarray(12))],
};

function assertNear(pixels: Uint8Array, expected: readonly number[], levels: number): void {
  assertEquals(pixels.length, expected.length);
  const far = pixels.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i])), 0);
  assert(far <= levels, `${far} levels`);
}

function converted(pixels: Uint8Array, colours: Colours): number[] {
  return Array.from(
    { length: pixels.length / 3 },
    (_, i) => inSrgb([...pixels.subarray(3 * i, 3 * i + 3)], colours),
  )
    .flat();
}

for (const [kind, files] of Object.entries(FILES)) {
  Deno.test(`images: converts the colours of a ${kind} image from its profile to sRGB`, async () => {
    for (const colours of [DISPLAY_P3, ADOBE_RGB]) {
      const [plain, given] = await Promise.all(files(profileOf(colours)).map(decodeImage));
      const expected = converted(plain.pixels, colours);
      assert(expected.some((value, i) => Math.abs(value - plain.pixels[i]) > 10));
      assertNear(given.pixels, expected, 2.5);
    }
  });
}

Deno.test("images: converts grey levels from a grey profile to sRGB", async () => {
  const colours = { ...SRGB, gamma: 1.75 };
  const [plain, given] = await Promise.all(
    [whole({ ...PLAIN, kind: 0 }), whole({ ...PLAIN, kind: 0 }, inPng(profileOf(colours, "GRAY")))]
      .map(decodeImage),
  );
  assertNear(given.pixels, Array.from(plain.pixels, (level) => grayInSrgb(level, colours)), 2.5);
});

Deno.test("images: ignores sRGB profiles, broken profiles and profiles of another colour space", async () => {
  const { pixels } = await decodeImage(whole(PLAIN));
  const p3 = profileOf(DISPLAY_P3);
  const profiles = {
    sRGB: profileOf(SRGB),
    "of grey": profileOf(ADOBE_RGB, "GRAY"),
    "cut off": p3.subarray(0, 200),
    "with a tag beyond the end": p3.map((byte, i) => i >= 136 && i < 140 ? 0xff : byte),
    "with too many tags": Uint8Array.from([...p3.subarray(0, 128), ...big(4, 2 ** 31), ...p3.subarray(132)]),
    empty: new Uint8Array(0),
  };
  for (const [name, profile] of Object.entries(profiles)) {
    const given = await decodeImage(whole(PLAIN, inPng(profile)));
    assert(given.pixels.every((value, i) => value === pixels[i]), name);
  }
});
