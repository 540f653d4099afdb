/**
 * Builds the kernels' library (`deno task build`) when it is missing or older than its sources. Every task that
 * computes runs this first: when there is nothing to do, it looks at some file times and says nothing.
 */
import { libraryPath } from "../ffi/library.ts";

const CRATE = new URL("../rust-kernels/", import.meta.url);
/** What the library is made of, in the crate's folder. */
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
async function cargo(args: readonly string[]): Promise<number> {
  try {
    const command = new Deno.Command("cargo", {
      args: [...args],
      cwd: CRATE,
      stdin: "null",
      stdout: "inherit",
    });
    return (await command.spawn().status).code;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      say(
        "Cannot build the kernels: cargo is not on the PATH. Install Rust 1.95 or newer: https://rustup.rs",
      );
    } else {
      say(`Cannot build the kernels: ${error instanceof Error ? error.message : error}`);
    }
    return 1;
  }
}

/** Returns the exit code. */
async function build(): Promise<number> {
  const library = libraryPath();
  const built = await written(library);
  if (built !== undefined && built >= await newest(SOURCES.map((name) => new URL(name, CRATE)))) return 0;
  say("Building the kernels (once, and whenever their sources change; a minute or two) …");
  const code = await cargo(["build", "--release", "--locked", "--quiet", "--lib"]);
  // Cargo leaves the file alone where only times have changed.
  if (code === 0) await Deno.utime(library, new Date(), new Date());
  return code;
}

if (import.meta.main) Deno.exit(await build());
