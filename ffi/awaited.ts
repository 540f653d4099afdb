import { LibraryNotFound } from "./find.ts";
import type { LibraryName } from "./names.ts";

const bringers = new Map<string, () => Promise<void>>();

/** Registers `bring`: from now on, a caller that does not find this library waits for it and looks again. */
export function awaitLibrary({ name }: LibraryName, bring: () => Promise<void>): void {
  bringers.set(name, bring);
}

/** Opens a library, after waiting for it if `bring` was set. Throws LibraryNotFound. */
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
