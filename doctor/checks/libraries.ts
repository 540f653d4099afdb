import { LibraryNotFound } from "../../ffi/find.ts";
import type { Finding, OpenLibrary, World } from "../types.ts";

/** The native kernels: without them nothing is computed. */
export function checkKernels(world: Pick<World, "openKernels">): Finding {
  return checkLibrary(() => world.openKernels(), "wrong");
}

/** The library of schemas and grammars: without it only requests with those are refused. */
export function checkGrammars(world: Pick<World, "openGrammars">): Finding {
  return checkLibrary(() => world.openGrammars(), "slow");
}

function checkLibrary(open: () => OpenLibrary, without: "slow" | "wrong"): Finding {
  try {
    const { path, version } = open();
    return { status: "ok", found: `${path}, ABI ${version}`, figures: { path, abi: version } };
  } catch (error) {
    if (!(error instanceof LibraryNotFound)) throw error;
    const looked = error.places.map(({ path, reason }) => `${path}: ${reason}`);
    return {
      status: without,
      found: [`none of ${looked.length} places has the ${error.library.what}`, ...looked].join("\n"),
      advice: error.advice,
      figures: { looked },
    };
  }
}
