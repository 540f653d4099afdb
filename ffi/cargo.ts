/** Builds the native libraries of a checkout with cargo, and reports progress. */
import { fromFileUrl } from "@std/path";
import { shipped } from "../package.ts";
import { builtLibrary, type Profile } from "./built.ts";
import type { LibraryName } from "./names.ts";

/** A build event, in JSON's types. `what` is the library's display name. */
export type BuildEvent =
  & { readonly what: string }
  & (
    /** Number of compiled crates and of all crates; `total` is 0 if cargo did not say. */
    | { readonly type: "crates"; readonly done: number; readonly total: number }
    /** Another cargo process builds in the same folder. */
    | { readonly type: "waiting" }
    | { readonly type: "built" }
    /** The build failed. `reason`: the last lines of cargo's messages, or advice if cargo is missing. */
    | { readonly type: "failed"; readonly reason: string }
  );

export interface BuildOptions {
  readonly profile: Profile;
  readonly tell: (event: BuildEvent) => void;
  /** Stops cargo when aborted. Its compiler finishes the present crate first, unless the terminal also signalled it. */
  readonly signal?: AbortSignal;
}

/** Cargo features of a build for serving, by crate: it compiles only this machine's instruction set. */
const SERVING_FEATURES: Readonly<Record<string, readonly string[]>> = {
  "rust-kernels": ["--features", "this-cpu"],
};
/** Number of last lines of cargo's output that a failed build shows. */
const LAST_LINES = 12;
/** The reason of a failed build without cargo. */
export const NO_CARGO = "cargo is not on the PATH: install Rust 1.95 or newer, https://rustup.rs";

/** Builds a library. Returns whether it exists; reports the reason of a failure. */
export async function buildLibrary(library: LibraryName, options: BuildOptions): Promise<boolean> {
  const { tell, profile, signal } = options;
  const { what } = library;
  try {
    const reason = await runCargo(library, options);
    if (reason !== undefined) {
      tell({ what, type: "failed", reason });
      return false;
    }
    // Cargo does not rewrite the file if only modification times of sources changed, so its time is set.
    await Deno.utime(builtLibrary(library, profile), new Date(), new Date());
    tell({ what, type: "built" });
    return true;
  } catch (error) {
    signal?.throwIfAborted();
    const reason = error instanceof Deno.errors.NotFound
      ? NO_CARGO
      : error instanceof Error
      ? error.message
      : String(error);
    tell({ what, type: "failed", reason });
    return false;
  }
}

/** Returns the reason of a failed build, or undefined. */
async function runCargo(library: LibraryName, { profile, tell, signal }: BuildOptions) {
  const { what } = library;
  const features = profile === "serving" ? SERVING_FEATURES[library.crate] ?? [] : [];
  const crates = new Set<string>();
  const total = await countCrates(library, [...features], signal);
  const progress = () => tell({ what, type: "crates", done: crates.size, total });
  progress();
  const child = cargo(library, [
    "build",
    "--lib",
    "--profile",
    profile,
    "--locked",
    "--target-dir",
    "target",
    "--color",
    "never",
    "--message-format",
    "json-render-diagnostics",
    ...features,
  ], signal);
  const last: string[] = [];
  const readMessages = async () => {
    for await (const line of linesOf(child.stdout)) {
      const id = compiledCrate(line);
      if (id === undefined || crates.has(id)) continue;
      crates.add(id);
      progress();
    }
  };
  const readErrors = async () => {
    for await (const line of linesOf(child.stderr)) {
      if (line.includes("waiting for file lock")) tell({ what, type: "waiting" });
      last.push(line);
      if (last.length > LAST_LINES) last.shift();
    }
  };
  const read = Promise.all([readMessages(), readErrors()]);
  const status = await child.status;
  signal?.throwIfAborted(); // a compiler that outlives cargo may keep the streams open
  await read;
  if (status.success) return undefined;
  return last.join("\n") || `cargo ended with exit code ${status.code}`;
}

/** Number of crates in a library, including itself; 0 if cargo does not say. */
async function countCrates(library: LibraryName, features: string[], signal?: AbortSignal): Promise<number> {
  const args = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"];
  const child = cargo(library, [...args, ...features], signal);
  const [crates] = await Promise.all([
    Array.fromAsync(linesOf(child.stdout)),
    Array.fromAsync(child.stderr),
    child.status,
  ]);
  return new Set(crates.filter((line) => line !== "")).size;
}

function cargo({ crate }: LibraryName, args: string[], signal: AbortSignal | undefined): Deno.ChildProcess {
  return new Deno.Command("cargo", {
    args,
    cwd: fromFileUrl(shipped(`${crate}/`)),
    // With permission only for cargo, Deno refuses to start it with another value of this variable.
    env: { LD_LIBRARY_PATH: "" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    signal,
  }).spawn();
}

/** The compiled crate in one of cargo's messages; a compiled build script does not count. */
function compiledCrate(line: string): string | undefined {
  if (!line.startsWith('{"reason":"compiler-artifact"')) return undefined;
  const { package_id, target } = JSON.parse(line);
  return target.kind.includes("custom-build") ? undefined : package_id;
}

/** Yields the lines of a stream of text. */
export async function* linesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== "") yield rest;
}
