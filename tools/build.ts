/**
 * Builds the libraries (`deno task build`) that are missing or older than their sources. Every task that computes runs
 * this first: when there is nothing to do, it looks at some file times and says nothing.
 */
import { builtLibrary, type LibraryName } from "../ffi/find.ts";
import { GRAMMARS } from "../ffi/grammar.ts";
import { KERNELS } from "../ffi/library.ts";

const LIBRARIES: readonly LibraryName[] = [KERNELS, GRAMMARS];
/** What a library is made of, in the crate's folder. */
const SOURCES = ["Cargo.toml", "Cargo.lock", "src/"];

/** When the newest of the files, or of the files under a folder (a URL that ends in "/"), was written. */
export async function newest(sources: readonly URL[]): Promise<number> {
  let time = 0;
  for (const source of sources) {
    if (source.pathname.endsWith("/")) {
      const entries = await Array.fromAsync(Deno.readDir(source));
      const inside = entries.map((e) =>
        new URL(encodeURIComponent(e.name) + (e.isDirectory ? "/" : ""), source)
      );
      time = Math.max(time, await newest(inside));
    } else {
      time = Math.max(time, (await Deno.stat(source)).mtime?.getTime() ?? 0);
    }
  }
  return time;
}

/** When a file was written; undefined where it is missing. */
async function written(path: string): Promise<number | undefined> {
  try {
    return (await Deno.stat(path)).mtime?.getTime();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

function say(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text + "\n"));
}

/** As an exit code: there is no cargo to run. */
const NO_CARGO = -1;

/** Runs cargo in the crate's folder. Returns the exit code, or NO_CARGO. */
async function cargo(what: string, folder: URL, args: readonly string[]): Promise<number> {
  try {
    const command = new Deno.Command("cargo", {
      args: [...args],
      cwd: folder,
      stdin: "null",
      stdout: "inherit",
    });
    const child = command.spawn();
    say(`Building the ${what} (once, and whenever its sources change; some two minutes) …`);
    return (await child.status).code;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return NO_CARGO;
    say(`Cannot build the ${what}: ${error instanceof Error ? error.message : error}`);
    return 1;
  }
}

/** Returns the exit code, or NO_CARGO. */
async function build(library: LibraryName): Promise<number> {
  const path = builtLibrary(library);
  const built = await written(path);
  const folder = new URL(`../${library.crate}/`, import.meta.url);
  const sources = SOURCES.map((name) => new URL(name, folder));
  if (built !== undefined && built >= await newest(sources)) return 0;
  const code = await cargo(library.what, folder, ["build", "--release", "--locked", "--quiet", "--lib"]);
  // Cargo leaves the file alone where only times have changed.
  if (code === 0) await Deno.utime(path, new Date(), new Date());
  return code;
}

const WITHOUT_CARGO =
  "Native libraries that are missing or out of date are not built: cargo is not on the PATH. Without them compy computes in WebAssembly, at half " +
  "the speed, and cannot hold answers to a schema or grammar. Install Rust 1.95 or newer: https://rustup.rs";

/**
 * One after the other: cargo uses all cores for each. Without cargo nothing is built, which is no failure: there are kernels in
 * WebAssembly. Returns the exit code.
 */
async function buildAll(): Promise<number> {
  for (const library of LIBRARIES) {
    const code = await build(library);
    if (code === NO_CARGO) {
      say(WITHOUT_CARGO);
      return 0;
    }
    if (code !== 0) return code;
  }
  return 0;
}

if (import.meta.main) Deno.exit(await buildAll());
