import { wasmModule } from "../../../package.ts";

/* The kernels as a WebAssembly module, and the features of the runtime for it. */

/** Memory sizes in pages of 64 KiB: the initial size, then maximum sizes to try in order, from 4 GiB down. */
export const MEMORY_PAGES = [64, 65_536, 49_152, 32_768, 16_384, 8_192] as const;

/** Bytes of the 4 GiB address space that a model may use. The rest holds stacks, messages and the kernels' own data. */
export const MOST_BYTES = 65_535 * 65_536 - 64 * 2 ** 20;

let bytes: Promise<Uint8Array<ArrayBuffer>> | undefined;
let compiled: Promise<WebAssembly.Module> | undefined;

/** Returns the bytes of the WebAssembly module. Throws if they cannot be read. */
export function moduleBytes(): Promise<Uint8Array<ArrayBuffer>> {
  return bytes ??= read(wasmModule());
}

/** Returns the WebAssembly module, compiled once per process. Throws if the runtime lacks an instruction. */
export function kernelModule(): Promise<WebAssembly.Module> {
  return compiled ??= moduleBytes().then((bytes) => WebAssembly.compile(bytes));
}

async function read(url: URL): Promise<Uint8Array<ArrayBuffer>> {
  if (url.protocol !== "file:") {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`Cannot load the kernels from ${url}: HTTP status ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
  }
  return new Uint8Array(process.getBuiltinModule("node:fs").readFileSync(url));
}

/** Returns whether workers can share a memory: everywhere except on web pages without cross-origin isolation. */
export function canShareMemory(): boolean {
  return typeof SharedArrayBuffer !== "undefined" &&
    (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated !== false;
}
