import { wasmModule } from "../../../package.ts";

/* The kernels as WebAssembly, and what the place where they are to run has for them. */

/** Pages of 64 KiB: what the module begins with; then as far as a memory may grow, 4 GiB or what can be had. */
export const MEMORY_PAGES = [64, 65_536, 49_152, 32_768, 16_384, 8_192] as const;

/** What of 4 GiB is left to a model, in bytes: the rest is for stacks, messages and the kernels' own data. */
export const MOST_BYTES = 65_535 * 65_536 - 64 * 2 ** 20;

let bytes: Promise<Uint8Array<ArrayBuffer>> | undefined;
let compiled: Promise<WebAssembly.Module> | undefined;

/** The module's bytes. Throws where they cannot be read. */
export function moduleBytes(): Promise<Uint8Array<ArrayBuffer>> {
  return bytes ??= read(wasmModule());
}

/** Compiled once a process. Throws where the runtime lacks an instruction. */
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

/** Whether workers can share a memory: everywhere but on pages that are not isolated from others. */
export function canShareMemory(): boolean {
  return typeof SharedArrayBuffer !== "undefined" &&
    (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated !== false;
}
