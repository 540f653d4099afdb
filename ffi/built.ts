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

/** Where cargo builds a library, in the order of looking. */
export function builtPlaces(library: LibraryName): { path: string; isStale: boolean }[] {
  return PROFILES.map((profile) => ({
    path: builtLibrary(library, profile),
    isStale: isStale(library, profile),
  }));
}

/** Whether a library was built from the sources as they are now, in one of these profiles. */
export function isBuilt(library: LibraryName, profiles: readonly Profile[] = PROFILES): boolean {
  return profiles.some((profile) =>
    writtenAt(builtLibrary(library, profile)) !== undefined && !isStale(library, profile)
  );
}

/** False too where nothing can be compared: the library is missing, or the sources cannot be read. */
function isStale(library: LibraryName, profile: Profile): boolean {
  const built = writtenAt(builtLibrary(library, profile));
  if (built === undefined) return false;
  try {
    return built < newest(shipped(`${library.crate}/`), NOT_SOURCES);
  } catch {
    return false;
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
