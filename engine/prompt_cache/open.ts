import { resolve } from "@std/path";
import { DiskFolder } from "./folder.ts";
import { FolderStore, type StoreOptions } from "./store.ts";

/** A folder's store for one of several users in this process. */
export interface OpenedStore {
  readonly store: FolderStore;
  /** The last one closes the store. */
  close(): Promise<void>;
}

interface Shared {
  readonly store: Promise<FolderStore>;
  users: number;
}

/** The stores of this process by their folders: several models share one. */
const open = new Map<string, Shared>();

/** Opens the store in a folder, or the one that is open there. Throws as FolderStore.open. */
export async function openStore(folder: string, options: StoreOptions): Promise<OpenedStore> {
  const path = resolve(folder);
  const shared = open.get(path) ?? { store: FolderStore.open(new DiskFolder(path), options), users: 0 };
  open.set(path, shared);
  shared.users++;
  const leave = () => {
    if (--shared.users === 0 && open.get(path) === shared) open.delete(path);
    return shared.users;
  };
  try {
    const store = await shared.store;
    return { store, close: async () => void (leave() === 0 && await store.close()) };
  } catch (error) {
    leave();
    throw error;
  }
}
