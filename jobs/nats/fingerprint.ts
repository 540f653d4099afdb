import { createHash } from "node:crypto";

const HEAD_BYTES = 8 * 1024 * 1024;
const SAMPLES = 256;
const SAMPLE_BYTES = 4096;

/**
 * Tells model files apart without reading all of them: SHA-256 over the size, the first 8 MiB (metadata, vocabulary,
 * tensor table) and 256 pages spread over the rest, hex. Files that differ by accident (another model, another
 * quantisation, other fine-tuning) differ in it; it is no protection from a file made to deceive.
 */
export async function fingerprint(path: string): Promise<string> {
  using file = await Deno.open(path, { read: true });
  const { size } = await file.stat();
  const digest = createHash("sha256").update(`${size}\n`);
  const read = async (offset: number, bytes: number) => {
    const buffer = new Uint8Array(Math.min(bytes, size - offset));
    await file.seek(offset, Deno.SeekMode.Start);
    for (let done = 0; done < buffer.length;) {
      const count = await file.read(buffer.subarray(done));
      if (count === null) throw new Error(`"${path}" became shorter while it was read`);
      done += count;
    }
    digest.update(buffer);
  };
  await read(0, HEAD_BYTES);
  const rest = size - HEAD_BYTES;
  for (let n = 1; rest > 0 && n <= SAMPLES; n++) {
    // The last page is the file's end: a file cut and padded differs there.
    await read(
      Math.max(HEAD_BYTES, HEAD_BYTES + Math.floor(rest * n / SAMPLES) - SAMPLE_BYTES),
      SAMPLE_BYTES,
    );
  }
  return digest.digest("hex");
}
