/** The libraries that cargo has built in a checkout, and whether they are as new as their sources. */
import { fromFileUrl } from "@std/path";
import { shipped } from "../package.ts";
import { libraryFile, type LibraryName } from "./names.ts";

/** Cargo's profiles in search order: `release` has every instruction set, `serving` only this machine's. */
const PROFILES = ["release", "serving"] as const;
export type Profile = typeof PROFILES[number];

/** Entries of a crate's folder that do not affect its library. */
const NOT_SOURCES = new Set(["target", "tests", "fuzz"]);

/** Cargo's output folder for a crate's library. */
export function builtLibrary({ crate, name }: LibraryName, profile: Profile = "release"): string {
  return fromFileUrl(shipped(`${crate}/target/${profile}/${libraryFile(name)}`));
}

/** The path of a library that cargo builds. */
export interface BuiltPlace {
  readonly path: string;
  readonly exists: boolean;
  /** Whether the library is older than its sources; false if it is missing or its sources cannot be read. */
  readonly isStale: boolean;
}

/** Returns the paths of a library that cargo builds, in search order. */
export function builtPlaces(
  library: LibraryName,
  profiles: readonly Profile[] = PROFILES,
): BuiltPlace[] {
  const files = profiles.map((profile) => builtLibrary(library, profile))
    .map((path) => ({ path, built: writtenAt(path) }));
  // Without a library, hundreds of source files need not be checked.
  const sources = files.some(({ built }) => built !== undefined) ? sourcesWrittenAt(library) : 0;
  return files.map(({ path, built }) => ({
    path,
    exists: built !== undefined,
    isStale: built !== undefined && built < sources,
  }));
}

/** Returns whether one of these profiles has a library of the current sources. */
export function isBuilt(library: LibraryName, profiles?: readonly Profile[]): boolean {
  return builtPlaces(library, profiles).some(({ exists, isStale }) => exists && !isStale);
}

/** Returns the modification time of the crate's newest source in milliseconds; 0 if the sources cannot be read. */
function sourcesWrittenAt({ crate }: LibraryName): number {
  try {
    return newest(shipped(`${crate}/`), NOT_SOURCES);
  } catch {
    return 0;
  }
}

/** Returns the newest modification time under a folder (a URL that ends in "/"), without entries of these names. */
export function newest(folder: URL, without: ReadonlySet<string> = new Set()): number {
  let time = 0;
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    if (without.has(name)) continue;
    const entry = new URL(encodeURIComponent(name), folder);
    const { mtime, isDirectory: leadsToFolder } = Deno.statSync(entry);
    time = Math.max(
      time,
      isDirectory || leadsToFolder ? newest(new URL(`${entry}/`)) : mtime?.getTime() ?? 0,
    );
  }
  return time;
}

function writtenAt(path: string): number | undefined {
  try {
    return Deno.statSync(path).mtime?.getTime();
  } catch {
    return undefined;
  }
}
