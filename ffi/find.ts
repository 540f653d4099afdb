/** Where a native library is looked for, and in which order. */
import { dirname, fromFileUrl, join, resolve } from "@std/path";
import { WordedError, type Wording } from "../engine/api/errors.ts";
import { FROM_SOURCE, platformPackage, shipped } from "../package.ts";
import { type BuiltPlace, builtPlaces } from "./built.ts";
import { KERNELS, libraryFile, type LibraryName } from "./names.ts";

export { libraryFile, type LibraryName } from "./names.ts";

/** The environment variable, and `--library` of the commands, that names the folder of the libraries, or a file in it. */
export const LIBRARY_VARIABLE = "COMPY_LIBRARY";

/** Why a place did not give the library. */
export type Problem = "missing" | "stale" | "not permitted" | "no loader" | "not loadable" | "other version";

/** A place that was looked at. */
export interface Place {
  /** The file; of a package that is not installed, the package's name. */
  readonly path: string;
  readonly problem: Problem;
  /** The same for people, such as `not there`. */
  readonly reason: string;
}

/** No place has a library that can be used. `places` says what was wrong with each, in the order of looking. */
export class LibraryNotFound extends WordedError {
  override name = "LibraryNotFound";
  readonly code = "library_not_found";
  /** What to do; it ends the message too. */
  readonly advice: Wording;

  /** `named`: it was said where the library is, and nothing is to stand in for it. */
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
        ...todo,
      ],
    );
    this.advice = todo;
  }
}

/** What to do, of the place that came nearest. */
function advice(library: LibraryName, places: readonly Place[]): Wording {
  const refused = places.find(({ problem }) => problem === "not permitted");
  if (refused) return [`Allow it: --allow-ffi=${dirname(refused.path)}`];
  if (places.some(({ problem }) => problem === "no loader")) {
    return ["Install koffi (npm leaves it out with --omit=optional)"];
  }
  const { os, cpu } = thisPlatform();
  const install = FROM_SOURCE
    ? "Run `deno task build`"
    : `Install ${platformPackage(os, cpu)} in the same version (npm leaves it out with --omit=optional)`;
  const file = libraryFile(library.name);
  return [`${install}, or name the folder that has ${file} with `, { library: undefined }];
}

/** Somewhere to look: a file, or why there is none. */
export type Candidate = { readonly path: string } | Place;

/** How the world is asked; a test has its own. */
export interface Surroundings {
  /** What COMPY_LIBRARY names. */
  readonly named: string | undefined;
  /** The folder of the program. */
  readonly program: string;
  /** The folder of an installed package; throws where it is not installed. */
  resolve(name: string): string;
  readonly fromSource: boolean;
  isFolder(path: string): boolean;
}

/**
 * The places to look at, first come first served: the one that is named, alone; beside the program; the platform's package;
 * where cargo builds.
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

/** A library that is older than its sources is not used: its ABI version may agree all the same. */
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

/** The folder where a package or a release has the libraries, for a process that this one starts; undefined in a checkout. */
export function installedLibraries(): string | undefined {
  if (FROM_SOURCE && namedLibrary() === undefined) return undefined;
  const found = kernelsLibrary();
  return found && dirname(found);
}

/** The first file where the kernels are looked for; undefined where there is none. It may still have another ABI. */
export function kernelsLibrary(): string | undefined {
  return candidates(KERNELS).find((place) => !("problem" in place) && isFile(place.path))?.path;
}

/** In Node's words, which npm's `os` and `cpu` are written in. */
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

/** As Node finds packages, which Deno does too; not imported, since browsers have no such module. */
function nodeResolve(specifier: string): string {
  const { createRequire } = process.getBuiltinModule("node:module");
  return createRequire(shipped("package.json")).resolve(specifier);
}

/** Where it was said that the libraries are. Nobody is asked for a permission because of a variable that hardly anybody sets. */
export function namedLibrary(): string | undefined {
  const readable = typeof Deno === "undefined" ||
    Deno.permissions.querySync({ name: "env", variable: LIBRARY_VARIABLE }).state === "granted";
  const named = readable ? process.env[LIBRARY_VARIABLE] : undefined;
  return named ? resolve(named) : undefined;
}
