/** Kinds of PNG images. */
import { concat } from "@std/bytes/concat.js";
import { deflateSync } from "node:zlib";
import { Random } from "../../../../testing/random.ts";
import { chunk, SIGNATURE } from "../pictures.ts";
import { big, exif, join, type Kind, utf8 } from "./bytes.ts";

const CHANNELS: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
/** Columns and rows of Adam7's passes: first ones and steps. */
const PASSES = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [
  0,
  1,
  1,
  2,
]];

interface Png {
  readonly width: number;
  readonly height: number;
  readonly depth: number;
  readonly kind: number;
  readonly interlaced?: boolean;
  /** The filter of every row. */
  readonly filter?: number;
}

export const PLAIN: Png = { width: 33, height: 20, depth: 8, kind: 2 };
export const SIZE = [33, 20] as const;

function head({ width, height, depth, kind, interlaced }: Png, compression = 0, filters = 0): Uint8Array {
  return chunk("IHDR", join(big(4, width, height), [depth, kind, compression, filters, interlaced ? 1 : 0]));
}

/** Returns random rows, each after its filter. */
function rows({ width, height, depth, kind, interlaced, filter = 0 }: Png, seed = 1): Uint8Array {
  const random = new Random(seed);
  const passes = interlaced ? PASSES : [[0, 0, 1, 1]];
  return concat(passes.flatMap(([x, y, across, down]) => {
    const [columns, lines] = [Math.ceil((width - x) / across), Math.ceil((height - y) / down)];
    if (columns <= 0 || lines <= 0) return [];
    const length = Math.ceil(columns * depth * CHANNELS[kind] / 8);
    return Array.from({ length: lines }, () => join([filter], random.bytes(length)));
  }));
}

const data = (bytes: Uint8Array) => chunk("IDAT", deflateSync(bytes));
const END = chunk("IEND", new Uint8Array(0));
const PALETTE = chunk("PLTE", new Random(3).bytes(3 * 256));
const file = (...chunks: Uint8Array[]) => join(SIGNATURE, ...chunks);
/** Returns a whole image, with chunks before the data. */
export const whole = (png: Png, ...before: Uint8Array[]) => {
  const palette = png.kind === 3 ? [chunk("PLTE", new Random(3).bytes(3 * 2 ** png.depth))] : [];
  return file(head(png), ...palette, ...before, data(rows(png)), END);
};
/** Returns a chunk with another checksum. */
const damaged = (chunk: Uint8Array) => chunk.map((byte, i) => i === chunk.length - 1 ? byte ^ 1 : byte);

export function pixelKinds(): Kind[] {
  const depths: Record<number, number[]> = {
    0: [1, 2, 4, 8, 16],
    2: [8, 16],
    3: [1, 2, 4, 8],
    4: [8, 16],
    6: [8, 16],
  };
  return Object.entries(depths).flatMap(([kind, depths]) =>
    depths.flatMap((depth) =>
      [false, true].map((interlaced): Kind => {
        const png = { ...PLAIN, kind: Number(kind), depth, interlaced };
        return [`PNG of kind ${kind}, ${depth} bits${interlaced ? ", interlaced" : ""}`, whole(png), SIZE];
      })
    )
  );
}

export function pngKinds(): Kind[] {
  const [header, body] = [head(PLAIN), data(rows(PLAIN))];
  const of = (changes: Partial<Png>) => ({ ...PLAIN, ...changes });
  const headOnly = (changes: Partial<Png>, ...more: number[]) => file(head(of(changes), ...more), body, END);
  const text = (name: string, bytes: Uint8Array) => chunk(name, join("key", [0, 0], bytes));
  const packed = deflateSync(rows(PLAIN));
  const bomb = deflateSync(new Uint8Array(2 ** 26));
  const fixed = (at: number, byte: number) => chunk("IDAT", packed.map((old, i) => i === at ? byte : old));
  return [
    [
      "PNG with every filter",
      file(header, data(join(...[0, 1, 2, 3, 4].map((filter) => rows(of({ height: 4, filter }))))), END),
      SIZE,
    ],
    ["PNG with an unknown filter", file(header, data(rows(of({ filter: 9 }))), END), "refused"],
    ["PNG with transparent grey", whole(of({ kind: 0 }), chunk("tRNS", big(2, 7))), SIZE],
    ["PNG with a transparent colour", whole(PLAIN, chunk("tRNS", big(2, 7, 8, 9))), SIZE],
    ["PNG with a transparent palette", whole(of({ kind: 3 }), chunk("tRNS", new Uint8Array(256))), SIZE],
    [
      "PNG with too much transparency",
      whole(of({ kind: 3, depth: 1 }), chunk("tRNS", new Uint8Array(300))),
      "either",
    ],
    [
      "PNG with gamma and chromaticities",
      whole(PLAIN, chunk("gAMA", big(4, 45455)), chunk("cHRM", new Uint8Array(32))),
      SIZE,
    ],
    ["PNG with a broken colour profile", whole(PLAIN, text("iCCP", utf8("not packed"))), SIZE],
    ["PNG with a colour profile of 64 MB", whole(PLAIN, text("iCCP", bomb)), "either"],
    ["PNG with a packed text of 64 MB", whole(PLAIN, text("zTXt", bomb)), "either"],
    ["PNG with an international text", whole(PLAIN, chunk("iTXt", join("k", [0, 0, 0, 0, 0], "ü"))), SIZE],
    ["PNG with EXIF orientation 6", whole(PLAIN, chunk("eXIf", exif(6))), [20, 33]],
    ["PNG with broken EXIF", whole(PLAIN, chunk("eXIf", utf8("MM\0*\xff\xff\xff\xff"))), SIZE],
    [
      "PNG with 1 byte per data chunk",
      file(header, ...Array.from(packed, (byte) => chunk("IDAT", Uint8Array.of(byte))), END),
      SIZE,
    ],
    [
      "PNG with empty data chunks",
      file(
        header,
        data(new Uint8Array(0)).subarray(0, 0),
        chunk("IDAT", new Uint8Array(0)),
        body,
        chunk("IDAT", new Uint8Array(0)),
        END,
      ),
      SIZE,
    ],
    [
      "PNG with a text between data chunks",
      file(
        header,
        chunk("IDAT", packed.subarray(0, 99)),
        text("tEXt", utf8("a")),
        chunk("IDAT", packed.subarray(99)),
        END,
      ),
      "either",
    ],
    ["PNG with chunks after its end", join(whole(PLAIN), text("tEXt", utf8("a"))), SIZE],
    ["PNG without an end", file(header, body), "either"],
    ["PNG with a wrong checksum of its header", file(damaged(header), body, END), "refused"],
    ["PNG with a wrong checksum of its data", file(header, damaged(body), END), "refused"],
    ["PNG with a wrong checksum of a text", whole(PLAIN, damaged(text("tEXt", utf8("a")))), "either"],
    [
      "PNG with a wrong checksum of the pixels",
      file(header, fixed(packed.length - 1, packed.at(-1)! ^ 1), END),
      "either",
    ],
    ["PNG with an unknown critical chunk", whole(PLAIN, chunk("ABCD", utf8("a"))), "either"],
    [
      "PNG with a palette after its data",
      file(head(of({ kind: 3 })), data(rows(of({ kind: 3 }))), PALETTE, END),
      "refused",
    ],
    ["PNG without a palette", file(head(of({ kind: 3 })), data(rows(of({ kind: 3 }))), END), "refused"],
    [
      "PNG with a cut palette",
      file(head(of({ kind: 3 })), chunk("PLTE", new Uint8Array(7)), data(rows(of({ kind: 3 }))), END),
      "either",
    ],
    [
      "PNG with pixels beyond its palette",
      file(head(of({ kind: 3 })), chunk("PLTE", new Uint8Array(3)), data(rows(of({ kind: 3 }))), END),
      "either",
    ],
    ["PNG of width 0", headOnly({ width: 0 }), "refused"],
    ["PNG of height 0", headOnly({ height: 0 }), "refused"],
    ["PNG of 2^31 columns", headOnly({ width: 2 ** 31, height: 1 }), "refused"],
    ["PNG of 2^32 - 1 columns and rows", headOnly({ width: 2 ** 32 - 1, height: 2 ** 32 - 1 }), "refused"],
    [
      "PNG of 16 bits that promises 268 MB",
      headOnly({ width: 5792, height: 5792, kind: 6, depth: 16 }),
      "refused",
    ],
    ["PNG of the most pixels", whole({ width: 8192, height: 4096, kind: 0, depth: 1 }), [8192, 4096]],
    ["PNG with one row too many", whole({ width: 8192, height: 4097, kind: 0, depth: 1 }), "refused"],
    ["PNG of 1 x 100,000", whole(of({ width: 1, height: 100_000 })), "refused"],
    ["PNG of 100,000 x 1", whole(of({ width: 100_000, height: 1 })), "refused"],
    ["PNG of 1 x 1", whole(of({ width: 1, height: 1 })), [1, 1]],
    ["PNG of 3 bits", headOnly({ depth: 3 }), "refused"],
    ["PNG of kind 5", headOnly({ kind: 5 }), "refused"],
    ["PNG of 4-bit RGB", headOnly({ depth: 4 }), "refused"],
    ["PNG of another compression", headOnly({}, 1), "either"],
    ["PNG of other filters", headOnly({}, 0, 1), "either"],
    ["PNG with a broken zlib header", file(header, fixed(0, 0), END), "refused"],
    ["PNG cut in its data", file(header, body.subarray(0, body.length / 2)), "refused"],
    ["PNG with too few rows", file(header, data(rows(of({ height: 19 }))), END), "refused"],
    ["PNG with too many rows", file(header, data(rows(of({ height: 300 }))), END), SIZE],
    ["PNG whose rows unpack to 64 MB", file(header, chunk("IDAT", bomb), END), SIZE],
    ["PNG with two headers", file(header, header, body, END), "either"],
    ["PNG with a text before its header", file(text("tEXt", utf8("a")), header, body, END), "refused"],
    ["PNG with nothing but an end", file(END), "refused"],
    ["PNG with nothing but a header", file(header), "refused"],
    ["PNG with a chunk of 4 GB", file(header, join(big(4, 2 ** 32 - 1), "IDAT")), "refused"],
    ["PNG with a chunk longer than the file", file(header, join(big(4, 9e6), "IDAT", packed)), "refused"],
    [
      "PNG with an animation",
      whole(
        PLAIN,
        chunk("acTL", big(4, 2, 0)),
        chunk("fcTL", join(big(4, 0, ...SIZE, 0, 0), big(2, 1, 9), [0, 0])),
      ),
      SIZE,
    ],
    ["PNG with an animation of no frames", whole(PLAIN, chunk("acTL", big(4, 0, 0))), "either"],
    ["PNG of Apple's kind", file(chunk("CgBI", big(4, 0x50002002)), header, body, END), "refused"],
    ["PNG's signature alone", Uint8Array.from(SIGNATURE), "refused"],
  ];
}
