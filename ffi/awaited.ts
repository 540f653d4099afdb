import { LibraryNotFound } from "./find.ts";
import type { LibraryName } from "./names.ts";

const bringers = new Map<string, () => Promise<void>>();

/** From here on, who needs this library and does not find it waits for `bring`, and looks again. */
export function awaitLibrary({ name }: LibraryName, bring: () => Promise<void>): void {
  bringers.set(name, bring);
}

/** Opens a library, after a wait where something is to bring it. Throws LibraryNotFound. */
export async function openAwaited<T>(open: () => T): Promise<T> {
  try {
    return open();
  } catch (error) {
    const bring = error instanceof LibraryNotFound ? bringers.get(error.library.name) : undefined;
    if (!bring) throw error;
    await bring();
    return open();
  }
}
