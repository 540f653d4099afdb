/** Builds the native libraries for releases: small, and compatible with old systems. */
import { basename, join } from "@std/path";
import { GRAMMARS, KERNELS, libraryFile, type LibraryName } from "../../ffi/names.ts";
import { run } from "./run.ts";

export const LIBRARIES: readonly LibraryName[] = [KERNELS, GRAMMARS];

/** Oldest supported glibc: that of Ubuntu 20.04 and Debian 11. */
const OLDEST_GLIBC = "2.31";
/** A linker that can link against any glibc version, and its wrapper for cargo; both from PyPI. */
const ZIG = ["ziglang==0.17.1", "cargo-zigbuild==0.24.0"];

/** Cargo settings of releases: no debug information, independent of this machine's settings. */
const PROFILE = {
  CARGO_PROFILE_RELEASE_STRIP: "symbols",
  CARGO_PROFILE_RELEASE_DEBUG: "false",
  CARGO_PROFILE_RELEASE_INCREMENTAL: "false",
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS: "16",
  MACOSX_DEPLOYMENT_TARGET: "11.0",
};

/** Builds both libraries for this machine's platform and copies them into a folder. */
export async function buildLibraries(root: string, folder: string): Promise<void> {
  const linux = Deno.build.os === "linux";
  const path: Record<string, string> = linux
    ? { PATH: `${await zigFolder(root)}:${Deno.env.get("PATH") ?? ""}` }
    : {};
  const target = linux ? Deno.build.target : undefined;
  for (const { crate, name } of LIBRARIES) {
    const what = target === undefined
      ? ["build", "--target-dir", join(root, crate, "target/release-package")]
      : ["zigbuild", "--target", `${target}.${OLDEST_GLIBC}`];
    const options = [
      "--release",
      "--locked",
      "--quiet",
      "--lib",
      "--manifest-path",
      join(root, crate, "Cargo.toml"),
    ];
    await run("cargo", [...what, ...options], { env: { ...PROFILE, ...path } });
    const built = join(root, crate, "target", target ?? "release-package", "release", libraryFile(name));
    await Deno.copyFile(built, join(folder, libraryFile(name)));
  }
}

/** Creates a Python environment with zig once. Returns the folder of its programs. */
async function zigFolder(root: string): Promise<string> {
  const folder = join(root, ".cache/zig");
  const bin = join(folder, "bin");
  try {
    await Deno.stat(join(bin, "cargo-zigbuild"));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    await run("python3", ["-m", "venv", folder]);
    await run("python3", ["-m", "pip", "--python", join(bin, "python3"), "install", "--quiet", ...ZIG]);
  }
  return bin;
}

/** Returns the newest glibc version that a Linux library needs. Throws if it is newer than OLDEST_GLIBC. */
export async function neededGlibc(path: string): Promise<string> {
  const versions = (await run("objdump", ["-T", path])).matchAll(/\bGLIBC_(\d+(?:\.\d+)+)/g);
  const newest = [...versions].map(([, version]) => version).reduce((a, b) => isNewer(b, a) ? b : a, "2.0");
  if (isNewer(newest, OLDEST_GLIBC)) {
    throw new Error(`${basename(path)} must need glibc ${OLDEST_GLIBC} at most (got ${newest})`);
  }
  return newest;
}

/** Returns whether version `a` is newer than `b`, compared number by number: 2.31 is newer than 2.4. */
export function isNewer(a: string, b: string): boolean {
  const [left, right] = [a, b].map((version) => version.split(".").map(Number));
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return false;
}
