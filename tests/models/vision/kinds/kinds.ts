/** Images of many kinds, good and bad, that code writes. */
import { chunk, jpeg, SIGNATURE } from "../pictures.ts";
import { join, type Kind, little, utf8 } from "./bytes.ts";
import { gifKinds } from "./gif.ts";
import { jpegKinds, segment, WIDE, withSegments } from "./jpeg.ts";
import { pixelKinds, PLAIN, pngKinds, SIZE, whole } from "./png.ts";
import { riff, webpKinds, webpOf } from "./webp.ts";

/** Mixtures of two kinds, and other formats. */
function otherKinds(): Kind[] {
  const png = whole(PLAIN);
  return [
    ["PNG and ZIP", join(png, "PK\x03\x04", new Uint8Array(50)), SIZE],
    ["PNG and HTML", join(png, "<html><script>alert(1)</script>"), SIZE],
    ["PNG with a script in a text", whole(PLAIN, chunk("tEXt", utf8("k\0<script>"))), SIZE],
    ["JPEG and ZIP", join(jpeg(), "PK\x03\x04", new Uint8Array(50)), WIDE],
    ["JPEG with a script in a comment", withSegments(segment(0xfe, utf8("*/=alert(1)/*"))), WIDE],
    ["GIF and JavaScript", join("GIF89a/*", new Uint8Array(20), "*/=alert(1)"), "refused"],
    ["PNG behind a PDF", join("%PDF-1.7\n", png), "refused"],
    ["JPEG with the signature of PNG", join(SIGNATURE, jpeg()), "refused"],
    ["PNG with the signature of JPEG", join([0xff, 0xd8, 0xff], png), "refused"],
    ["WebP that holds a PNG", webpOf(riff("VP8 ", png)), "refused"],
    ["PNG behind a byte order mark", join([0xef, 0xbb, 0xbf], png), "refused"],
    ["BMP", join("BM", little(4, 58, 0, 54, 40, 1, 1), little(2, 1, 24), new Uint8Array(28)), "refused"],
    ["TIFF", join("II*\0", little(4, 8), new Uint8Array(20)), "refused"],
    ["ICO", join(little(2, 0, 1, 1), new Uint8Array(16), png), "refused"],
    ["AVIF", join([0, 0, 0, 24], "ftypavif", new Uint8Array(40)), "refused"],
    ["HEIC", join([0, 0, 0, 24], "ftypheic", new Uint8Array(40)), "refused"],
    ["JPEG XL", Uint8Array.of(0xff, 0x0a, 0, 0), "refused"],
    ["SVG", utf8("<svg xmlns='http://www.w3.org/2000/svg'/>"), "refused"],
    ["netpbm", utf8("P6 1 1 255 abc"), "refused"],
    ["nothing", new Uint8Array(0), "refused"],
    ["one byte", Uint8Array.of(0x89), "refused"],
    ["1 MB of zeros", new Uint8Array(1e6), "refused"],
  ];
}

/** Returns all kinds of images. */
export function kindsOfPictures(): Kind[] {
  return [...pixelKinds(), ...pngKinds(), ...jpegKinds(), ...gifKinds(), ...webpKinds(), ...otherKinds()];
}
