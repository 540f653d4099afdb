/** A checkout without builds, with a fake cargo that a test controls, and a library for each crate that it "builds". */
import { fromFileUrl, join } from "@std/path";
import { libraryFile } from "../../ffi/find.ts";
import { builtLibrary } from "../../ffi/built.ts";
import { GRAMMARS, KERNELS, type LibraryName } from "../../ffi/names.ts";

const ROOT = fromFileUrl(new URL("../../", import.meta.url));
const LIBRARIES = [KERNELS, GRAMMARS];

export interface FreshCheckout extends AsyncDisposable {
  readonly path: string;
  /** Environment variables for processes in the checkout. */
  readonly env: Record<string, string>;
  /** Lets the crate's build succeed or, with `failure`, fail with that message. */
  finish(library: LibraryName, failure?: string): Promise<void>;
  /** Process ids of started builds and of their children. */
  processes(): Promise<number[]>;
}

/** Creates a checkout without builds. `cargo: false`: the PATH has no cargo. */
export async function freshCheckout({ cargo = true } = {}): Promise<FreshCheckout> {
  const path = await Deno.makeTempDir({ prefix: "compy fresh ü " });
  for await (const { name } of Deno.readDir(ROOT)) {
    if (!/^\.|^rust-|^deno\.json$|^target$/.test(name)) {
      await Deno.symlink(join(ROOT, name), join(path, name));
    }
  }
  await Deno.copyFile(join(ROOT, "deno.json"), join(path, "deno.json"));
  for (const { crate } of LIBRARIES) {
    await Deno.mkdir(join(path, crate));
    for (const name of ["Cargo.toml", "Cargo.lock", "src"]) {
      await Deno.symlink(join(ROOT, crate, name), join(path, crate, name));
    }
  }
  const state = join(path, "state");
  await Deno.mkdir(join(path, "bin"), { recursive: true });
  await Deno.mkdir(state);
  if (cargo) await Deno.writeTextFile(join(path, "bin/cargo"), script(state), { mode: 0o755 });
  return {
    path,
    env: { PATH: `${join(path, "bin")}:/usr/bin:/bin` },
    finish: async ({ crate }, failure = "") => {
      await Deno.writeTextFile(join(state, `${crate}.part`), failure);
      await Deno.rename(join(state, `${crate}.part`), join(state, `${crate}.end`));
    },
    processes: async () => {
      const files = await Array.fromAsync(Deno.readDir(state));
      const ids = files.filter(({ name }) => name.endsWith(".pid"))
        .map(async ({ name }) => (await Deno.readTextFile(join(state, name))).trim().split("\n").map(Number));
      return (await Promise.all(ids)).flat();
    },
    [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }),
  };
}

/**
 * Returns the fake cargo's script: it reports one of two compiled crates, then waits for its result. Its child stands
 * for rustc.
 */
function script(state: string): string {
  const copies = LIBRARIES.map((library) =>
    `${library.crate}) library='${builtLibrary(library)}' file=${libraryFile(library.name)} ;;`
  );
  return `#!/bin/sh
if [ "$1" = tree ]; then echo one; echo two; exit; fi
crate=$(basename "$PWD")
state='${state}'
artifact() { echo '{"reason":"compiler-artifact","package_id":"'$1'","target":{"kind":["lib"]}}'; }
artifact one
sleep 600 & child=$!
printf '%s\\n%s\\n' $$ $child > "$state/$crate.pid"
until [ -e "$state/$crate.end" ]; do sleep 0.05; done
kill $child
if [ -s "$state/$crate.end" ]; then cat "$state/$crate.end" >&2; exit 101; fi
case $crate in
${copies.join("\n")}
esac
mkdir -p target/serving
cp "$library" "target/serving/$file"
artifact two
`;
}
