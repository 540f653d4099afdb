import { equals } from "@std/bytes/equals.js";

/*
 * A file holds one part:
 *
 *   8 bytes    "compyKV1"
 *   32 bytes   its name
 *   8 bytes    bytes of the part, little-endian
 *   32 bytes   SHA-256 of these 48 bytes and of the SHA-256 of the part
 *   the part
 */
const MAGIC = new TextEncoder().encode("compyKV1");
const CHECKED = 48;
/** Bytes of a part file's header. */
export const HEAD_BYTES = CHECKED + 32;

/** Returns the header of a part's file. */
export async function headOf(name: string, part: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const head = new Uint8Array(HEAD_BYTES);
  head.set(MAGIC);
  head.set(process.getBuiltinModule("node:buffer").Buffer.from(name, "hex"), MAGIC.length);
  new DataView(head.buffer).setBigUint64(MAGIC.length + 32, BigInt(part.length), true);
  head.set(await checksum(head, part), CHECKED);
  return head;
}

/**
 * Returns the part in a file; undefined if the file differs from the bytes that were written under this name.
 */
export async function partOf(
  name: string,
  file: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (file.length < HEAD_BYTES) return undefined;
  const part = file.subarray(HEAD_BYTES);
  return equals(file.subarray(0, HEAD_BYTES), await headOf(name, part)) ? part : undefined;
}

/** Returns the header's SHA-256. Web Crypto computes it on another thread. */
async function checksum(head: Uint8Array, part: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const both = new Uint8Array(CHECKED + 32);
  both.set(head.subarray(0, CHECKED));
  both.set(new Uint8Array(await crypto.subtle.digest("SHA-256", part)), CHECKED);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", both));
}
