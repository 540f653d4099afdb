/** Kinds of GIF images. */
import { Random } from "../../../../testing/random.ts";
import { join, type Kind, little } from "./bytes.ts";

interface Gif {
  readonly version?: string;
  readonly screen?: readonly [number, number];
  readonly frame?: readonly [x: number, y: number, width: number, height: number];
  readonly colours?: "global" | "local" | "none";
  readonly interlaced?: boolean;
  readonly transparent?: boolean;
  readonly frames?: number;
  readonly codeSize?: number;
  readonly codes?: readonly number[];
}

/** Returns a GIF of 128 colours. Frequent clear codes keep every code in one byte. */
function gif(
  { version = "89a", screen = [30, 20], frame = [0, 0, ...screen], colours = "global", ...more }: Gif = {},
): Uint8Array {
  const { interlaced = false, transparent = false, frames = 1, codeSize = 7, codes } = more;
  const palette = new Random(5).bytes(3 * 128);
  const pixels = Math.min(frame[2] * frame[3], 10_000);
  const written = codes ?? [
    ...Array.from({ length: pixels }, (_, i) => i % 100 === 0 ? [128, i % 128] : [i % 128]).flat(),
    129,
  ];
  const blocks = Array.from({ length: Math.ceil(written.length / 255) }, (_, i) => {
    const block = written.slice(255 * i, 255 * (i + 1));
    return join([block.length], block);
  });
  const one = join(
    transparent ? [0x21, 0xf9, 4, 1, 0, 0, 5, 0] : [],
    [0x2c],
    little(2, ...frame),
    [(colours === "local" ? 0x86 : 0) | (interlaced ? 0x40 : 0)],
    colours === "local" ? palette : [],
    [codeSize],
    ...blocks,
    [0],
  );
  return join(
    `GIF${version}`,
    little(2, ...screen),
    [colours === "global" ? 0x86 : 0, 0, 0],
    colours === "global" ? palette : [],
    ...Array<Uint8Array>(frames).fill(one),
    [0x3b],
  );
}

export function gifKinds(): Kind[] {
  const size = [30, 20] as const;
  const comment = join([0x21, 0xfe], ...Array<Uint8Array>(2000).fill(join([255], new Uint8Array(255))), [0]);
  return [
    ["GIF of 1987", gif({ version: "87a" }), size],
    ["GIF of 1989", gif(), size],
    ["GIF of 1990", gif({ version: "90a" }), "refused"],
    ["GIF with transparency", gif({ transparent: true }), size],
    ["GIF with three frames", gif({ frames: 3 }), size],
    ["GIF with its own palette for the frame", gif({ colours: "local" }), size],
    ["GIF without a palette", gif({ colours: "none" }), "either"],
    ["GIF, interlaced", gif({ interlaced: true }), size],
    ["GIF with a small frame", gif({ frame: [5, 5, 3, 3] }), size],
    ["GIF with a frame larger than the screen", gif({ frame: [0, 0, 60, 40] }), "either"],
    ["GIF with a frame outside of the screen", gif({ frame: [40, 40, 9, 9] }), "either"],
    ["GIF with an empty frame", gif({ frame: [0, 0, 0, 0] }), "either"],
    ["GIF with an empty screen", gif({ screen: [0, 0], frame: [0, 0, 9, 9] }), "either"],
    ["GIF of 65,535 x 65,535", gif({ screen: [65_535, 65_535], frame: [0, 0, 9, 9] }), "refused"],
    ["GIF with a frame of 65,535 x 65,535", gif({ frame: [0, 0, 65_535, 65_535] }), "refused"],
    ["GIF of 1 x 65,535", gif({ screen: [1, 65_535], frame: [0, 0, 1, 9] }), "refused"],
    ["GIF with codes of 0 bits", gif({ codeSize: 0 }), "either"],
    ["GIF with codes of 200 bits", gif({ codeSize: 200 }), "refused"],
    ["GIF with codes that are not there", gif({ codes: [128, 255, 254, 253] }), "either"],
    ["GIF with too few pixels", gif({ codes: [128, 1, 2, 3, 129] }), "either"],
    ["GIF with no data", gif({ codes: [] }), "either"],
    [
      "GIF with a comment of 500 kB",
      join(gif().subarray(0, 13 + 384), comment, gif().subarray(13 + 384)),
      size,
    ],
    ["GIF with no image", join(gif().subarray(0, 13 + 384), [0x3b]), "refused"],
    [
      "GIF with an unknown block",
      join(gif().subarray(0, 13 + 384), [0x77], gif().subarray(13 + 384)),
      "refused",
    ],
    ["GIF cut in its palette", gif().subarray(0, 99), "refused"],
    ["GIF cut in its pixels", gif().subarray(0, 700), "either"],
    ["GIF with bytes behind it", join(gif(), "<script>"), size],
  ];
}
