/**
 * Builds the libraries (`deno task build`) that are missing or older than their sources. Every task that computes runs
 * this first: when there is nothing to do, it looks at some file times and says nothing.
 */
import { grammarLibraryPath } from "../ffi/grammar.ts";
import { libraryPath } from "../ffi/library.ts";

interface Crate {
  readonly name: string;
  readonly folder: URL;
  readonly library: string;
}

const CRATES: readonly Crate[] = [
  { name: "the kernels", folder: new URL("../rust-kernels/", import.meta.url), library: libraryPath() },
  {
    name: "the grammar library",
    folder: new URL("../rust-grammar/", import.meta.url),
    library: grammarLibraryPath(),
  },
];
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

/** Runs cargo in the crate's folder. Returns the exit code. */
async function cargo({ name, folder }: Crate, args: readonly string[]): Promise<number> {
  try {
    const command = new Deno.Command("cargo", {
      args: [...args],
      cwd: folder,
      stdin: "null",
      stdout: "inherit",
    });
    return (await command.spawn().status).code;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      say(
        `Cannot build ${name}: cargo is not on the PATH. Install Rust 1.95 or newer: https://rustup.rs`,
      );
    } else {
      say(`Cannot build ${name}: ${error instanceof Error ? error.message : error}`);
    }
    return 1;
  }
}

/** Returns the exit code. */
async function build(crate: Crate): Promise<number> {
  const built = await written(crate.library);
  const sources = SOURCES.map((name) => new URL(name, crate.folder));
  if (built !== undefined && built >= await newest(sources)) return 0;
  say(`Building ${crate.name} (once, and whenever its sources change; some two minutes) …`);
  const code = await cargo(crate, ["build", "--release", "--locked", "--quiet", "--lib"]);
  // Cargo leaves the file alone where only times have changed.
  if (code === 0) await Deno.utime(crate.library, new Date(), new Date());
  return code;
}

/** One after the other: cargo uses all cores for each. Returns the exit code. */
async function buildAll(): Promise<number> {
  for (const crate of CRATES) {
    const code = await build(crate);
    if (code !== 0) return code;
  }
  return 0;
}

if (import.meta.main) Deno.exit(await buildAll());
