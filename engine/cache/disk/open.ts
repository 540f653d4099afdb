import { resolve } from "@std/path";
import { DiskFolder } from "./folder.ts";
import { FolderStore, type StoreOptions } from "./store.ts";

/** A prompt store that several models in this process share. */
export interface OpenedStore {
  readonly store: FolderStore;
  /** Releases the store. The last user's call closes it. */
  close(): Promise<void>;
}

interface Shared {
  readonly store: Promise<FolderStore>;
  users: number;
  /** Promise that resolves when the store is closed; undefined while the store has users. */
  closed?: Promise<void>;
}

/** This process's open prompt stores, by folder. */
const stores = new Map<string, Shared>();

/** Opens the prompt store in a folder, or shares the open one. Throws as FolderStore.open. */
export async function openStore(folder: string, options: StoreOptions): Promise<OpenedStore> {
  const path = resolve(folder);
  for (let closing = stores.get(path)?.closed; closing; closing = stores.get(path)?.closed) await closing;
  const shared = stores.get(path) ?? { store: FolderStore.open(new DiskFolder(path), options), users: 0 };
  stores.set(path, shared);
  shared.users++;
  try {
    const store = await shared.store;
    return { store, close: () => leave(path, shared, () => store.close()) };
  } catch (error) {
    await leave(path, shared, () => Promise.resolve());
    throw error;
  }
}

async function leave(path: string, shared: Shared, close: () => Promise<void>): Promise<void> {
  if (--shared.users > 0) return;
  shared.closed = close().finally(() => stores.delete(path));
  await shared.closed;
}
