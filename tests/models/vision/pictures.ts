/** Small images: PNG written chunk by chunk, and other formats as Pillow wrote them. */
import { crc32 } from "node:zlib";
import { Random } from "../../../testing/random.ts";

export const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

export interface PngOptions {
  /** PNG's kinds of pixels: 0 grey, 2 RGB, 4 grey and alpha, 6 RGB and alpha. */
  readonly kind?: 0 | 2 | 4 | 6;
  readonly depth?: 8 | 16;
  /** Number of rows in the data; by default the number in the header. */
  readonly rows?: number;
  /** All samples are 0, alpha included. */
  readonly transparent?: boolean;
}

const CHANNELS = { 0: 1, 2: 3, 4: 2, 6: 4 } as const;

/** Returns a PNG image of random pixels. */
export async function png(
  width: number,
  height: number,
  seed: number,
  { kind = 2, depth = 8, rows = height, transparent = false }: PngOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const random = new Random(seed);
  const stride = 1 + width * CHANNELS[kind] * depth / 8;
  const data = transparent ? new Uint8Array(stride * rows) : random.bytes(stride * rows);
  for (let row = 0; row < rows; row++) data[row * stride] = 0; // no filter
  const head = new DataView(new ArrayBuffer(13));
  head.setUint32(0, width);
  head.setUint32(4, height);
  head.setUint8(8, depth);
  head.setUint8(9, kind);
  const packed = new Blob([data]).stream().pipeThrough(new CompressionStream("deflate"));
  const chunks = [
    chunk("IHDR", new Uint8Array(head.buffer)),
    chunk("IDAT", new Uint8Array(await new Response(packed).arrayBuffer())),
    chunk("IEND", new Uint8Array(0)),
  ];
  return new Uint8Array(await new Blob([new Uint8Array(SIGNATURE), ...chunks]).arrayBuffer());
}

/** Returns a chunk of a PNG image. */
export function chunk(name: string, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(12 + data.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(name), 4);
  bytes.set(data, 8);
  view.setUint32(8 + data.length, crc32(bytes.subarray(4, 8 + data.length)));
  return bytes;
}

const of = (base64: string) => () => Uint8Array.fromBase64(base64);

/** A gradient of 96 x 64 pixels: red grows to the right, green downwards. */
export const jpeg = of(
  "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7" +
    "gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8" +
    "fHx8fHx8fHz/wAARCABAAGADASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUF" +
    "BAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVW" +
    "V1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi" +
    "4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAEC" +
    "AxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVm" +
    "Z2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq" +
    "8vP09fb3+Pn6/9oADAMBAAIRAxEAPwDlglPCVKEpwSvTcjKMyIJTwlShKcEqXI6IzIglPCVKEpwSocjojMiCU8JUoSnhKhyOmMyI" +
    "JTglShKeEqHI6IzIglOCVKEp4SpcjojMyglPCVKEpwStXI+MjMiCU8JUoSnBKhyOiMyIJTwlShKeEqXI6IzIQlPCVKEp4SocjojM" +
    "iCU4JUoSnhKhyOiMyIJTglShKeEqHI6YzMoJTwlShKeErZyPi4zIQlPCVKEp4SocjpjMiCU4JUoSnhKhyOiMyIJTglShKeEqXI6I" +
    "zIglOCVMEpwSocjojMiCU8JUoSnBKhyOiMzLCU4JUoSnhK2cj4yMyIJTglShKeEqHI6IzIglOCVKEp4SocjojMiCU8JUgSnhKlyO" +
    "mMyIJTwlShKcEqHI6IzIglPCVKEpwSocjojM/9k=",
);

/** The gradient with EXIF orientation 6: programs show the image turned to the right. */
export const turned = of(
  "/9j/4AAQSkZJRgABAQAAAQABAAD/4QAiRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAD/2wBDABQODxIPDRQSEBIXFRQY" +
    "HjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8" +
    "fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHz/wAARCABAAGADASIAAhEBAxEB/8QAHwAAAQUBAQEB" +
    "AQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAk" +
    "M2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKj" +
    "pKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAA" +
    "AAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl" +
    "8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmq" +
    "srO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwDlglPCVKEpwSvTcjKMyIJT" +
    "wlShKcEqXI6IzIglPCVKEpwSocjojMiCU8JUoSnhKhyOmMyIJTglShKeEqHI6IzIglOCVKEp4SpcjojMyglPCVKEpwStXI+MjMiC" +
    "U8JUoSnBKhyOiMyIJTwlShKeEqXI6IzIQlPCVKEp4SocjojMiCU4JUoSnhKhyOiMyIJTglShKeEqHI6YzMoJTwlShKeErZyPi4zI" +
    "QlPCVKEp4SocjpjMiCU4JUoSnhKhyOiMyIJTglShKeEqXI6IzIglOCVMEpwSocjojMiCU8JUoSnBKhyOiMzLCU4JUoSnhK2cj4yM" +
    "yIJTglShKeEqHI6IzIglOCVKEp4SocjojMiCU8JUgSnhKlyOmMyIJTwlShKcEqHI6IzIglPCVKEpwSocjojM/9k=",
);

/** JPEG of 32 x 32 pixels in cyan, magenta, yellow and black. */
export const cmyk = of(
  "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAbEhQXFBEbFxYXHhwbIChCKyglJShROj0wQmBVZWRfVV1baniZgWpxkHNbXYW1hpCeo6ut" +
    "q2eAvMm6pseZqKuk/8AAFAgAIAAgBEMRAE0RAFkRAEsRAP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//EALUQAAIB" +
    "AwMCBAMFBQQEAAABfQECAwAEEQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZH" +
    "SElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV" +
    "1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/aAA4EQwBNAFkASwAAPwDCt+1YXke1FdNWnb9qPI9qKK07ftR5HtRRWnb9qPI9qKK4" +
    "a37Vp+R7UUVp2/ajyPaiitO37UeR7UUVp2/ajyPaiiuGt+1afke1FFadv2o8j2oorTt+1Hke1FFadv2o8j2oorhrftWn5HtRRWnb" +
    "9qPI9qKK07ftR5HtRRWnb9qPI9qKK//Z",
);

/** The gradient as WebP. */
export const webp = of(
  "UklGRq4AAABXRUJQVlA4IKIAAACwBgCdASpgAEAAPxGIu1e/v6YppXQIA/AiCWIGfC6wRoCtBhfO/r9gFlV91g7P////6Ub/////" +
    "drP////8cAD+7eIs1npf5L2/m9nbRRYy5af6FUxP4lF88U/ewC2oHJHTeMXnWvqeIJ+LO7T1c2TjNeHpB1+JBWppzwxMVDHme7Pb" +
    "tUaJuHGcCCFWh8nZXbdGtA0sOnucnFu2EEDqmd7gAAA=",
);

/** WebP of 32 x 32 pixels with two frames. */
export const animated = of(
  "UklGRuAAAABXRUJQVlA4WAoAAAACAAAAHwAAHwAAQU5JTQYAAAAAAAAAAABBTk1GbgAAAAAAAAAAAB8AAB8AADIAAAJWUDggVgAA" +
    "AHADAJ0BKiAAIAAu+ZzOZyUvLy8PAPhLYAwgDYREkdQL/+T9EAD+6hvE+dav8+jxZOY80JmlfNB26t02X6Dr9b4NtNoKt3kG/6x7" +
    "QE5C7Bqf0X7bjAAAQU5NRj4AAAAAAAAAAAAfAAAfAAAyAAAAVlA4ICYAAABUAgCdASogACAALvmczmcAAA+EtIABIXlnTwAA/vCE" +
    "r/oHAEAAAA==",
);
