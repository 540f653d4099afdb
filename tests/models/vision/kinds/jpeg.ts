/** Kinds of JPEG images. */
import { concat } from "@std/bytes/concat.js";
import { cmyk, jpeg, turned } from "../pictures.ts";
import { big, exif, join, type Kind, utf8 } from "./bytes.ts";

export const segment = (code: number, ...parts: Uint8Array[]) => {
  const bytes = concat(parts);
  return join([0xff, code], big(2, bytes.length + 2), bytes);
};
/** Returns the gradient of 96 x 64 pixels with segments at its start. */
export const withSegments = (...segments: Uint8Array[]) =>
  join(jpeg().subarray(0, 2), ...segments, jpeg().subarray(2));
const withExif = (bytes: Uint8Array) => withSegments(segment(0xe1, utf8("Exif\0\0"), bytes));
export const WIDE = [96, 64] as const;

/** Returns the gradient of 96 x 64 pixels with an EXIF orientation. */
export function withOrientation(orientation: number): Uint8Array {
  return withExif(exif(orientation));
}

/** Returns the start of the first segment with this code. */
function find(bytes: Uint8Array, code: number): number {
  for (let at = 2; at < bytes.length; at += 2 + 256 * bytes[at + 2] + bytes[at + 3]) {
    if (bytes[at + 1] === code) return at;
  }
  throw new Error(`no segment ${code}`);
}

/** Returns the gradient with other bytes in the segment of a code. */
function changed(code: number, offset: number, ...bytes: number[]): Uint8Array {
  const image = jpeg();
  image.set(bytes, find(image, code) + offset);
  return image;
}

/** Returns the gradient without the first segment of a code. */
function without(code: number): Uint8Array {
  const image = jpeg();
  const at = find(image, code);
  const length = 2 + 256 * image[at + 2] + image[at + 3];
  return join(image.subarray(0, at), image.subarray(at + length));
}

const [SOF, SOS, DHT, DQT] = [0xc0, 0xda, 0xc4, 0xdb];

export function jpegKinds(): Kind[] {
  const image = jpeg();
  const scan = find(image, SOS);
  const middle = Math.floor((scan + image.length) / 2);
  const profile = (...numbers: number[]) =>
    segment(0xe2, utf8("ICC_PROFILE\0"), Uint8Array.from(numbers), new Uint8Array(128));
  const size = (height: number, width: number) => changed(SOF, 5, ...big(2, height, width));
  const orientations = Array.from({ length: 8 }, (_, i): Kind => {
    return [`JPEG with EXIF orientation ${i + 1}`, withOrientation(i + 1), i < 4 ? WIDE : [64, 96]];
  });
  return [
    ...orientations,
    ["JPEG with orientation 0", withExif(exif(0)), WIDE],
    ["JPEG with orientation 9", withExif(exif(9)), WIDE],
    ["JPEG with orientation 6, lowest byte first", withExif(exif(6, "II")), [64, 96]],
    ["JPEG whose EXIF leads in a circle", withExif(exif(1, "MM", { next: 8 })), WIDE],
    ["JPEG whose EXIF begins beyond its end", withExif(exif(6, "MM", { at: 2 ** 31 })), WIDE],
    ["JPEG with 2^32 - 1 orientations", withExif(exif(6, "MM", { count: 2 ** 32 - 1 })), "either"],
    ["JPEG with cut EXIF", withExif(exif(6).subarray(0, 13)), WIDE],
    ["JPEG with empty EXIF", withExif(new Uint8Array(0)), WIDE],
    [
      "JPEG with two EXIF segments",
      join(turned().subarray(0, 2), segment(0xe1, utf8("Exif\0\0"), exif(1)), turned().subarray(2)),
      "either",
    ],
    ["JPEG with a colour profile", withSegments(profile(1, 1)), WIDE],
    ["JPEG with a colour profile in the wrong order", withSegments(profile(2, 2), profile(1, 2)), WIDE],
    ["JPEG with part 9 of a colour profile of 2", withSegments(profile(9, 2)), "either"],
    ["JPEG with part 0 of a colour profile", withSegments(profile(0, 0)), "either"],
    ["JPEG in CMYK", cmyk(), [32, 32]],
    [
      "JPEG with Adobe's segment of another transform",
      withSegments(segment(0xee, utf8("Adobe"), Uint8Array.of(0, 100, 0, 0, 0, 0, 9))),
      "either",
    ],
    ["JPEG without Huffman tables", without(DHT), "refused"],
    ["JPEG without quantization tables", without(DQT), "refused"],
    ["JPEG without a frame", without(SOF), "refused"],
    ["JPEG of height 0", size(0, 96), "refused"],
    ["JPEG of width 0", size(64, 0), "refused"],
    ["JPEG of 65,535 x 65,535", size(65_535, 65_535), "refused"],
    ["JPEG of 1 x 65,535", size(65_535, 1), "refused"],
    ["JPEG larger than its data", size(4000, 4000), "either"],
    ["JPEG of 12 bits", changed(SOF, 4, 12), "refused"],
    ["JPEG of 5 components", changed(SOF, 9, 5), "refused"],
    ["JPEG of 0 components", changed(SOF, 9, 0), "refused"],
    ["JPEG with sampling factors of 0", changed(SOF, 11, 0), "refused"],
    ["JPEG with sampling factors of 15", changed(SOF, 11, 0xff), "refused"],
    ["JPEG with odd sampling factors", changed(SOF, 11, 0x31), "either"],
    ["JPEG with a table that is not there", changed(SOF, 12, 3), "refused"],
    ["JPEG with equal component numbers", changed(SOF, 13, image[find(image, SOF) + 10]), "either"],
    ["JPEG with arithmetic coding", changed(SOF, 1, 0xc9), "refused"],
    ["JPEG without loss", changed(SOF, 1, 0xc3), "refused"],
    ["JPEG that only says to be progressive", changed(SOF, 1, 0xc2), "either"],
    [
      "JPEG with two frames",
      join(
        image.subarray(0, scan),
        image.subarray(find(image, SOF), find(image, SOF) + 19),
        image.subarray(scan),
      ),
      "either",
    ],
    ["JPEG with restarts that do not come", withSegments(segment(0xdd, big(2, 1))), "either"],
    ["JPEG with a long comment", withSegments(segment(0xfe, new Uint8Array(65_533))), WIDE],
    [
      "JPEG with fill bytes",
      join(image.subarray(0, 2), new Uint8Array(500).fill(0xff), image.subarray(2)),
      "either",
    ],
    [
      "JPEG with a segment of length 0",
      join(image.subarray(0, 2), [0xff, 0xe5, 0, 0], image.subarray(2)),
      "refused",
    ],
    [
      "JPEG with a segment beyond its end",
      join(image.subarray(0, 2), [0xff, 0xe5, 0xff, 0xff], image.subarray(2)),
      "refused",
    ],
    ["JPEG with a cut scan", join(image.subarray(0, middle), [0xff, 0xd9]), "either"],
    ["JPEG cut in its scan", image.subarray(0, middle), "refused"],
    ["JPEG without an end", image.subarray(0, image.length - 2), "refused"],
    ["JPEG with Huffman codes that overlap", changed(DHT, 5, ...Array(16).fill(255)), "refused"],
    ["JPEG with a quantization table of zeros", changed(DQT, 5, ...Array(64).fill(0)), "either"],
    ["JPEG with nothing but start and end", Uint8Array.of(0xff, 0xd8, 0xff, 0xd9), "refused"],
    ["JPEG with a second image behind it", join(image, cmyk()), WIDE],
  ];
}
