import { LibraryNotFound } from "../../ffi/find.ts";
import type { Finding, OpenLibrary, Wanted, World } from "../types.ts";

/** The native kernels; where there are none, and nobody insists on them, WebAssembly computes. */
export function checkKernels(
  world: Pick<World, "openKernels">,
  { backend }: Pick<Wanted, "backend">,
): Finding {
  if (backend === "wasm") return { status: "ok", found: "not needed: --backend wasm" };
  if (backend === "cpu") return checkLibrary(() => world.openKernels(), "wrong", "nothing is computed");
  return checkLibrary(() => world.openKernels(), "slow", "WebAssembly computes, more slowly");
}

/** The library of schemas and grammars: without it only requests with those are refused. */
export function checkGrammars(world: Pick<World, "openGrammars">): Finding {
  return checkLibrary(() => world.openGrammars(), "slow", "requests with schemas and grammars are refused");
}

function checkLibrary(open: () => OpenLibrary, status: "slow" | "wrong", without: string): Finding {
  try {
    const { path, version } = open();
    return { status: "ok", found: `${path}, ABI ${version}`, figures: { path, abi: version } };
  } catch (error) {
    if (!(error instanceof LibraryNotFound)) throw error;
    const looked = error.places.map(({ path, reason }) => `${path}: ${reason}`);
    return {
      status,
      found: [`none of ${looked.length} places has the ${error.library.what}: ${without}`, ...looked].join(
        "\n",
      ),
      advice: error.advice,
      figures: { looked },
    };
  }
}
