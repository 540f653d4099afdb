// @ts-check
/// <reference lib="dom" />

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 */

const NAME = "compy";
const TABLE = "conversations";

/** Stores conversations in this browser only. If the browser has no storage, they last as long as the page. */
export class ConversationStore {
  /** @type {Promise<IDBDatabase | undefined>} */
  #database;

  constructor() {
    this.#database = openDatabase().catch(() => undefined);
  }

  /** Returns true if conversations survive closing the page. */
  async lasts() {
    return (await this.#database) !== undefined;
  }

  /**
   * Returns all conversations, the last changed one first.
   * @returns {Promise<Conversation[]>}
   */
  async all() {
    const database = await this.#database;
    if (!database) return [];
    const found = await done(database.transaction(TABLE).objectStore(TABLE).getAll());
    return found.sort((a, b) => b.updated - a.updated);
  }

  /** Stores all or none. @param {...Conversation} conversations */
  async put(...conversations) {
    const database = await this.#database;
    const table = database?.transaction(TABLE, "readwrite").objectStore(TABLE);
    if (table) await Promise.all(conversations.map((conversation) => done(table.put(conversation))));
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
 * Returns a stored text; "" if there is none or the browser has no storage.
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
    // Without storage, the page just forgets the value when it closes.
  }
}
