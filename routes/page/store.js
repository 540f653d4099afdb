// @ts-check
/// <reference lib="dom" />

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 */

const NAME = "compy";
const TABLE = "conversations";

/** Conversations in this browser, and nowhere else. Where the browser keeps none, they last as long as the page. */
export class ConversationStore {
  /** @type {Promise<IDBDatabase | undefined>} */
  #database;

  constructor() {
    this.#database = openDatabase().catch(() => undefined);
  }

  /** Whether they will still be there when the page is opened again. */
  async lasts() {
    return (await this.#database) !== undefined;
  }

  /**
   * All, the one changed last first.
   * @returns {Promise<Conversation[]>}
   */
  async all() {
    const database = await this.#database;
    if (!database) return [];
    const found = await done(database.transaction(TABLE).objectStore(TABLE).getAll());
    return found.sort((a, b) => b.updated - a.updated);
  }

  /** @param {Conversation} conversation */
  async put(conversation) {
    const database = await this.#database;
    if (database) await done(database.transaction(TABLE, "readwrite").objectStore(TABLE).put(conversation));
  }

  /** @param {string} id */
  async remove(id) {
    const database = await this.#database;
    if (database) await done(database.transaction(TABLE, "readwrite").objectStore(TABLE).delete(id));
  }
}

/** @returns {Promise<IDBDatabase>} */
function openDatabase() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
  return done(request);
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * A small text that outlives the page; "" where there is none or the browser keeps none.
 * @param {string} name
 * @param {Storage} [storage]
 */
export function recall(name, storage = globalThis.localStorage) {
  try {
    return storage.getItem(`compy.${name}`) ?? "";
  } catch {
    return "";
  }
}

/**
 * @param {string} name
 * @param {string} value "" forgets it
 * @param {Storage} [storage]
 */
export function remember(name, value, storage = globalThis.localStorage) {
  try {
    if (value === "") storage.removeItem(`compy.${name}`);
    else storage.setItem(`compy.${name}`, value);
  } catch {
    // It lasts as long as the page, then.
  }
}
