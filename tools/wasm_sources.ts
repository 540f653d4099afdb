/** Tells whether the committed WebAssembly modules were built from the current sources. */

/** A committed module, and the crate that it is built from. */
export interface WasmModule {
  readonly file: URL;
  readonly crate: URL;
  /** Name of cargo's output. */
  readonly built: string;
  /** Whether its threads share one memory. */
  readonly threads: boolean;
}

export const KERNELS: WasmModule = {
  file: new URL("../engine/backend/wasm/compy.wasm", import.meta.url),
  crate: new URL("../rust-kernels/", import.meta.url),
  built: "compy.wasm",
  threads: true,
};

/** The decoders of images. */
export const IMAGES: WasmModule = {
  file: new URL("../engine/vision/images.wasm", import.meta.url),
  crate: new URL("../rust-images/", import.meta.url),
  built: "compy_images.wasm",
  threads: false,
};

/** Name of a module's custom section with the sources' hash, in hex. */
export const SOURCES_SECTION = "compy.sources";

/** Sources that only other targets use: programs, and CPU instruction sets. */
const OTHERS = /^src\/(bin\/|simd\/(avx2|avx2_bytes|avx2_tile|avx512|x86|neon|scalar)\.rs$)/;

/** Returns the SHA-256 of the module's sources, in hex. */
export async function hashSources({ crate }: WasmModule): Promise<string> {
  const names = ["Cargo.toml", "Cargo.lock", ...await rustFiles(crate, "src/")].sort();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (const name of names.filter((name) => !OTHERS.test(name))) {
    const bytes = await Deno.readFile(new URL(name, crate));
    parts.push(new TextEncoder().encode(`${name} ${bytes.length}\n`), bytes);
  }
  const digest = await crypto.subtle.digest("SHA-256", await new Blob(parts).arrayBuffer());
  return new Uint8Array(digest).toHex();
}

async function rustFiles(crate: URL, folder: string): Promise<string[]> {
  const names: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(new URL(folder, crate))) {
    if (isDirectory) names.push(...await rustFiles(crate, `${folder}${name}/`));
    else if (name.endsWith(".rs")) names.push(folder + name);
  }
  return names;
}

/** Returns the module with a custom section appended. */
export function withSection(module: Uint8Array, name: string, text: string): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder();
  const [title, content] = [encoder.encode(name), encoder.encode(text)];
  const length = 1 + title.length + content.length;
  if (length > 127) throw new RangeError("lengths of two bytes are not written here");
  const result = new Uint8Array(module.length + 2 + length);
  result.set(module);
  result.set([0, length, title.length, ...title, ...content], module.length);
  return result;
}
