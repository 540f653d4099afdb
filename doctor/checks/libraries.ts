import { render, type Words } from "../../engine/api/errors.ts";
import { LibraryNotFound } from "../../ffi/find.ts";
import type { Finding, OpenLibrary, Wanted, World } from "../types.ts";

/**
 * Checks the native kernels. WebAssembly replaces missing ones, unless the native backend or a library path
 * is set.
 */
export function checkKernels(
  world: Pick<World, "openKernels">,
  { backend, words }: Pick<Wanted, "backend" | "words">,
): Finding {
  if (backend === "wasm") return { status: "ok", found: "not needed: --backend wasm" };
  return checkLibrary(
    () => world.openKernels(),
    ({ named }) =>
      backend === "cpu" || named
        ? ["wrong", "nothing is computed"]
        : ["slow", "WebAssembly computes, more slowly"],
    words,
  );
}

/** Checks the grammar library. Without it, only requests with schemas or grammars are refused. */
export function checkGrammars(
  world: Pick<World, "openGrammars">,
  { words }: Pick<Wanted, "words"> = {},
): Finding {
  const lack = (): Lack => ["slow", "requests with schemas and grammars are refused"];
  return checkLibrary(() => world.openGrammars(), lack, words);
}

/** Consequence of a missing library: status and lost feature. */
type Lack = readonly [status: "slow" | "wrong", without: string];

function checkLibrary(
  open: () => OpenLibrary,
  lack: (error: LibraryNotFound) => Lack,
  words?: Words,
): Finding {
  try {
    const { path, version } = open();
    return { status: "ok", found: `${path}, ABI ${version}`, figures: { path, abi: version } };
  } catch (error) {
    if (!(error instanceof LibraryNotFound)) throw error;
    const [status, without] = lack(error);
    const looked = error.places.map(({ path, reason }) => `${path}: ${reason}`);
    return {
      status,
      found: [`none of ${looked.length} places has the ${error.library.what}: ${without}`, ...looked].join(
        "\n",
      ),
      advice: render(error.advice, words),
      figures: { looked },
    };
  }
}
