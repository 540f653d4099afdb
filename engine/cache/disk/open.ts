import { resolve } from "@std/path";
import { DiskFolder } from "./folder.ts";
import { FolderStore, type StoreOptions } from "./store.ts";

/** A folder's store, shared by several users in this process. */
export interface OpenedStore {
  readonly store: FolderStore;
  /** The last user's call closes the store. */
  close(): Promise<void>;
}

interface Shared {
  readonly store: Promise<FolderStore>;
  users: number;
  /** Promise that resolves when the store is closed. Undefined while the store has users. */
  closed?: Promise<void>;
}

/** This process's stores by folder. Several models share one. */
const stores = new Map<string, Shared>();

/** Opens the store in a folder, or shares the open one. Throws as FolderStore.open. */
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
