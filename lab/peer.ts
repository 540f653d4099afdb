/** Installs the peer that benchmarks compare with. */
import { join } from "@std/path";
import { loadAverage, ROOT, run, say } from "../bench/shell.ts";

export const PEER = "node-llama-cpp";
export const PEER_VERSION = "3.22.1";

/** Load average (processes that want to run) above which a machine counts as busy. */
const BUSY = 0.5;

export type PeerBackend = "cpu" | "webgpu";

/** Returns the graphics API that the peer uses for this platform's GPU. */
export function peerGpu(): "metal" | "vulkan" {
  return Deno.build.os === "darwin" ? "metal" : "vulkan";
}

/** Returns this platform's name in the peer's packages. */
function platformPackage(backend: PeerBackend): string {
  const { os, arch } = Deno.build;
  const system = { linux: "linux", darwin: "mac", windows: "win" }[os as string];
  if (!system) throw new Error(`Cannot install ${PEER}: it has no package for ${os}`);
  const cpu = arch === "aarch64" ? "arm64" : "x64";
  const metal = system === "mac" && cpu === "arm64" ? "-metal" : "";
  const vulkan = backend === "webgpu" && system !== "mac" ? "-vulkan" : "";
  return `@node-llama-cpp/${system}-${cpu}${metal}${vulkan}`;
}

/** Returns the folder of the peer's build for the CPU or the GPU. Installs it if it is missing. */
export async function installPeer(backend: PeerBackend = "cpu"): Promise<string> {
  const folder = join(ROOT, ".cache", `${PEER}-${PEER_VERSION}${backend === "webgpu" ? "-gpu" : ""}`);
  // npm writes this file last, so it marks a complete installation.
  if (await exists(join(folder, "node_modules", ".package-lock.json"))) return folder;
  say(`Installing ${PEER} ${PEER_VERSION} into ${folder} …`);
  await Deno.mkdir(folder, { recursive: true });
  const packages = [PEER, platformPackage(backend)].map((name) => `${name}@${PEER_VERSION}`);
  // Flags without optional dependencies (other platforms' packages) and install scripts (which look for a compiler).
  const flags = ["--prefix", ".", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"];
  await run("npm", ["install", ...flags, ...packages], folder);
  return folder;
}

export async function exists(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Warns if other programs use the CPU. Returns the load average: processes that want to run, over a minute. */
export function warnIfBusy(): number {
  const load = loadAverage();
  if (load > BUSY) {
    say(
      `Other programs use the CPU (load ${
        load.toFixed(1)
      }): the figures will be too low, especially the peer's`,
    );
  }
  return load;
}
