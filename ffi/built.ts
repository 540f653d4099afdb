/** The libraries that cargo has built in a checkout, and whether they are as new as their sources. */
import { fromFileUrl } from "@std/path";
import { shipped } from "../package.ts";
import { libraryFile, type LibraryName } from "./names.ts";

/** Cargo's profiles, in the order of looking: `release` has every instruction set, `serving` only those that this machine would choose. */
export const PROFILES = ["release", "serving"] as const;
export type Profile = typeof PROFILES[number];

/** What lies in a crate's folder and does not go into its library. */
const NOT_SOURCES = new Set(["target", "tests", "fuzz"]);

/** Where cargo leaves a crate's library. */
export function builtLibrary({ crate, name }: LibraryName, profile: Profile = "release"): string {
  return fromFileUrl(shipped(`${crate}/target/${profile}/${libraryFile(name)}`));
}

/** A file where cargo builds a library. */
export interface BuiltPlace {
  readonly path: string;
  readonly exists: boolean;
  /** Older than its sources. False too if the library is missing, or its sources cannot be read. */
  readonly isStale: boolean;
}

/** Returns where cargo builds a library, in the order of looking. */
export function builtPlaces(
  library: LibraryName,
  profiles: readonly Profile[] = PROFILES,
): BuiltPlace[] {
  const files = profiles.map((profile) => builtLibrary(library, profile))
    .map((path) => ({ path, built: writtenAt(path) }));
  // Looking at some hundred files is not worth it without a library to compare them with.
  const sources = files.some(({ built }) => built !== undefined) ? sourcesWrittenAt(library) : 0;
  return files.map(({ path, built }) => ({
    path,
    exists: built !== undefined,
    isStale: built !== undefined && built < sources,
  }));
}

/** Whether a library was built from the sources as they are now, in one of these profiles. */
export function isBuilt(library: LibraryName, profiles?: readonly Profile[]): boolean {
  return builtPlaces(library, profiles).some(({ exists, isStale }) => exists && !isStale);
}

/** Returns when the crate's newest source was written, in milliseconds; 0 if the sources cannot be read. */
function sourcesWrittenAt({ crate }: LibraryName): number {
  try {
    return newest(shipped(`${crate}/`), NOT_SOURCES);
  } catch {
    return 0;
  }
}

/** When the newest file under a folder (a URL that ends in "/") was written, without the entries of these names. */
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
