/** Search order for native libraries. */
import { dirname, fromFileUrl, join, resolve } from "@std/path";
import { WordedError, type Wording } from "../engine/api/errors.ts";
import { FROM_SOURCE, platformPackage, shipped } from "../package.ts";
import { type BuiltPlace, builtPlaces } from "./built.ts";
import { KERNELS, libraryFile, type LibraryName } from "./names.ts";

export { libraryFile, type LibraryName } from "./names.ts";

/** Environment variable (and `--library` of commands) for the libraries' folder, or a file in it. */
export const LIBRARY_VARIABLE = "COMPY_LIBRARY";

/** Reasons why a place has no usable library. */
export type Problem =
  | "missing"
  | "stale"
  | "not permitted"
  | "no loader"
  | "not loadable"
  | "other version"
  | Shortage;

/** A resource that was missing, and that may be available again later. */
type Shortage = keyof typeof SHORTAGES;

const SHORTAGES = {
  "no descriptors": "Close other programs or raise the limit (ulimit -n)",
  "no memory": "End other programs or raise the limit (ulimit -v)",
};

/** A searched place. */
export interface Place {
  /** Path of the file, or the name of a package that is not installed. */
  readonly path: string;
  readonly problem: Problem;
  /** The reason as text, for example `not there`. */
  readonly reason: string;
}

/** Thrown if no place has a usable library. `places` has the problem of each, in search order. */
export class LibraryNotFound extends WordedError {
  override name = "LibraryNotFound";
  readonly code = "library_not_found";
  /** The advice at the end of the message. */
  readonly advice: Wording;

  /** `named`: the user named the library's place, so no other place may replace it. */
  constructor(
    readonly library: LibraryName,
    readonly places: readonly Place[],
    readonly named: boolean = false,
  ) {
    const todo = places.length === 0 ? ["Run compy in Deno or Node"] : advice(library, places);
    super(
      places.length === 0 ? `Cannot load the ${library.what}: a browser cannot load native libraries` : [
        `Cannot load the ${library.what}. Looked at:\n`,
        ...places.map(({ path, reason }) => `  ${path}: ${reason}\n`),
        "  ",
        ...todo,
      ],
    );
    this.advice = todo;
  }
}

/** Returns whether the place may work later. */
export function isShortage(problem: Problem): problem is Shortage {
  return Object.hasOwn(SHORTAGES, problem);
}

/** Returns advice for the most promising place. */
function advice(library: LibraryName, places: readonly Place[]): Wording {
  const refused = places.find(({ problem }) => problem === "not permitted");
  if (refused) return [`Allow it: --allow-ffi=${dirname(refused.path)}`];
  if (places.some(({ problem }) => problem === "no loader")) {
    return ["Install koffi (npm leaves it out with --omit=optional)"];
  }
  for (const { problem } of places) if (isShortage(problem)) return [SHORTAGES[problem]];
  const { os, cpu } = thisPlatform();
  const install = FROM_SOURCE
    ? "Run `deno task build`"
    : `Install ${platformPackage(os, cpu)} in the same version (npm leaves it out with --omit=optional)`;
  const file = libraryFile(library.name);
  return [`${install}, or name the folder that has ${file} with `, { library: undefined }];
}

/** A place to search: a file, or the reason why there is none. */
export type Candidate = { readonly path: string } | Place;

/** Access to the environment; tests replace it. */
export interface Surroundings {
  /** The value of COMPY_LIBRARY. */
  readonly named: string | undefined;
  /** The folder of the program. */
  readonly program: string;
  /** The folder of an installed package; throws if it is not installed. */
  resolve(name: string): string;
  readonly fromSource: boolean;
  isFolder(path: string): boolean;
}

/**
 * Returns the places to search, in order. If the user names a place, it is the only one. Otherwise: beside the program,
 * in the platform's package, in cargo's output folders.
 */
export function candidates(library: LibraryName, around: Surroundings = surroundings()): Candidate[] {
  const file = libraryFile(library.name);
  const { named } = around;
  if (named !== undefined) {
    return [{ path: join(around.isFolder(named) ? named : dirname(named), file) }];
  }
  const found: Candidate[] = [{ path: join(around.program, file) }, packaged(file, around)];
  return around.fromSource ? [...found, ...builtPlaces(library).map(asCandidate)] : found;
}

/**
 * Returns a built library as a place. One that is older than its sources is refused, because its ABI version may still
 * match.
 */
function asCandidate({ path, isStale }: BuiltPlace): Candidate {
  return isStale ? { path, problem: "stale", reason: "older than its sources" } : { path };
}

function packaged(file: string, around: Surroundings): Candidate {
  const { os, cpu } = thisPlatform();
  const name = platformPackage(os, cpu);
  try {
    return { path: join(around.resolve(name), file) };
  } catch {
    return { path: name, problem: "missing", reason: "this package is not installed" };
  }
}

/** Returns the library folder of a package or release, for a child process; undefined in a checkout. */
export function installedLibraries(): string | undefined {
  if (FROM_SOURCE && namedLibrary() === undefined) return undefined;
  const found = kernelsLibrary();
  return found && dirname(found);
}

/** Returns the first existing file for the kernels, which may have another ABI; undefined if there is none. */
export function kernelsLibrary(): string | undefined {
  return candidates(KERNELS).find((place) => !("problem" in place) && isFile(place.path))?.path;
}

/** Returns the platform in Node's terms, as in npm's `os` and `cpu`. */
export function thisPlatform(): { os: string; cpu: string } {
  return { os: process.platform, cpu: process.arch };
}

function surroundings(): Surroundings {
  return {
    named: namedLibrary(),
    program: fromFileUrl(shipped("./")),
    resolve: (name) => dirname(nodeResolve(`${name}/package.json`)),
    fromSource: FROM_SOURCE,
    isFolder: (path) => stat(path)?.isDirectory() ?? false,
  };
}

function isFile(path: string): boolean {
  return stat(path)?.isFile() ?? false;
}

function stat(path: string) {
  try {
    return process.getBuiltinModule("node:fs").statSync(path);
  } catch {
    return undefined;
  }
}

/**
 * Returns the path of a package by Node's resolution, which Deno has too. The function is not imported, because
 * browsers lack the module.
 */
function nodeResolve(specifier: string): string {
  const { createRequire } = process.getBuiltinModule("node:module");
  return createRequire(shipped("package.json")).resolve(specifier);
}

/**
 * Returns the place of the libraries that the user named. Does not prompt for permission to read a rarely used
 * variable.
 */
export function namedLibrary(): string | undefined {
  const readable = typeof Deno === "undefined" ||
    Deno.permissions.querySync({ name: "env", variable: LIBRARY_VARIABLE }).state === "granted";
  const named = readable ? process.env[LIBRARY_VARIABLE] : undefined;
  return named ? resolve(named) : undefined;
}
