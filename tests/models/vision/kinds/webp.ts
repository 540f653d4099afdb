/** Kinds of WebP images. */
import { Random } from "../../../../testing/random.ts";
import { animated, webp } from "../pictures.ts";
import { exif, join, type Kind, little, utf8 } from "./bytes.ts";
import { WIDE } from "./jpeg.ts";

export const riff = (kind: string, content: Uint8Array, length = content.length) =>
  join(kind, little(4, length), content, new Uint8Array(content.length % 2));
export const webpOf = (...chunks: Uint8Array[]) => riff("RIFF", join("WEBP", ...chunks));
export const canvas = (width: number, height: number, flags = 0) =>
  riff(
    "VP8X",
    join([flags, 0, 0, 0], little(4, width - 1).subarray(0, 3), little(4, height - 1).subarray(0, 3)),
  );

export function webpKinds(): Kind[] {
  const bytes = webp();
  const lossy = bytes.subarray(12);
  const header = (at: number, ...values: number[]) => {
    const copy = webp();
    copy.set(values, at);
    return copy;
  };
  const random = new Random(9);
  return [
    ["WebP with loss", bytes, WIDE],
    ["WebP with an animation", animated(), [32, 32]],
    ["WebP in an extended file", webpOf(canvas(...WIDE), lossy), WIDE],
    ["WebP with EXIF orientation 6", webpOf(canvas(...WIDE, 8), lossy, riff("EXIF", exif(6))), [64, 96]],
    ["WebP with broken EXIF", webpOf(canvas(...WIDE, 8), lossy, riff("EXIF", utf8("MM"))), WIDE],
    [
      "WebP with a colour profile",
      webpOf(canvas(...WIDE, 0x20), riff("ICCP", new Uint8Array(99)), lossy),
      WIDE,
    ],
    ["WebP with an unknown chunk", webpOf(canvas(...WIDE), riff("ABCD", new Uint8Array(7)), lossy), WIDE],
    ["WebP on a canvas of another size", webpOf(canvas(9, 9), lossy), "either"],
    ["WebP on the largest canvas", webpOf(canvas(2 ** 24, 2 ** 24), lossy), "refused"],
    [
      "WebP with broken alpha",
      webpOf(canvas(...WIDE, 0x10), riff("ALPH", random.bytes(50)), lossy),
      "either",
    ],
    [
      "WebP with an animation of no frames",
      webpOf(canvas(...WIDE, 2), riff("ANIM", new Uint8Array(6))),
      "refused",
    ],
    [
      "WebP with a frame outside of the canvas",
      webpOf(
        canvas(...WIDE, 2),
        riff("ANIM", new Uint8Array(6)),
        riff("ANMF", join([99, 0, 0, 99, 0, 0], new Uint8Array(10), lossy)),
      ),
      "refused",
    ],
    ["WebP without an image", webpOf(canvas(...WIDE)), "refused"],
    ["WebP with random bytes without loss", webpOf(riff("VP8L", join([0x2f], random.bytes(200)))), "refused"],
    [
      "WebP without loss, of 16,384 x 16,384",
      webpOf(riff("VP8L", Uint8Array.of(0x2f, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0))),
      "refused",
    ],
    ["WebP without loss, without data", webpOf(riff("VP8L", Uint8Array.of(0x2f, 0, 0, 0, 0))), "refused"],
    ["WebP of width 0", header(26, 0, 0), "refused"],
    ["WebP of 16,383 x 16,383", header(26, 0xff, 0x3f, 0xff, 0x3f), "refused"],
    ["WebP with another start code", header(23, 0, 0, 0), "refused"],
    ["WebP with a file length of 4 GB", header(4, 0xff, 0xff, 0xff, 0xff), "either"],
    ["WebP with a file length of 0", header(4, 0, 0, 0, 0), "either"],
    ["WebP with a chunk of 4 GB", header(16, 0xff, 0xff, 0xff, 0xff), "either"],
    ["WebP with a first partition of 500 kB", header(20, 0xf0, 0xff, 0xff), "refused"],
    ["WebP cut in its middle", bytes.subarray(0, 90), "refused"],
  ];
}
