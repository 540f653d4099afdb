// @ts-check
/// <reference lib="dom" />
import { imagesOf } from "./conversation.js";
import { addedAt } from "./images.js";
import { everyMessage } from "./versions.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 */

const NAME = "compy";
const TABLE = "conversations";
/** Images have their own database, because a new version of the first database would lock out pages that are open. */
const [IMAGE_NAME, IMAGE_TABLE] = ["compy-images", "images"];
/** Age in milliseconds at which an image that is in no conversation is removed. Another tab may not have saved yet. */
const UNUSED_MS = 24 * 3600 * 1000;

/** Stores conversations in this browser only. If the browser has no storage, they last as long as the page. */
export class ConversationStore {
  /** @type {Promise<IDBDatabase | undefined>} */
  #database;

  constructor() {
    this.#database = openDatabase(NAME, TABLE, { keyPath: "id" }).catch(() => undefined);
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

/** Stores the files of images. Without storage, it keeps the files that were added since the page was opened. */
export class ImageStore {
  /** @type {Map<string, Blob>} */
  #added = new Map();
  #database = openDatabase(IMAGE_NAME, IMAGE_TABLE).catch(() => undefined);

  /**
   * Stores a file. Throws if the browser has no storage or no space left; the file is then kept until the page closes.
   * @param {string} id
   * @param {Blob} blob
   */
  async put(id, blob) {
    this.#added.set(id, blob);
    const database = await this.#database;
    if (!database) throw new Error("The browser has no storage");
    await done(database.transaction(IMAGE_TABLE, "readwrite").objectStore(IMAGE_TABLE).put(blob, id));
  }

  /**
   * Returns the file of an image; undefined if the browser has removed it.
   * @param {string} id
   * @returns {Promise<Blob | undefined>}
   */
  async get(id) {
    const added = this.#added.get(id);
    const database = added ? undefined : await this.#database;
    return database ? await done(database.transaction(IMAGE_TABLE).objectStore(IMAGE_TABLE).get(id)) : added;
  }

  /**
   * Removes files of old images that are in no conversation.
   * @param {readonly Conversation[]} conversations
   */
  async clean(conversations) {
    const database = await this.#database;
    if (!database) return;
    const messages = conversations.flatMap((conversation) => [...everyMessage(conversation)]);
    const used = new Set(imagesOf(messages).map(({ id }) => id));
    const table = database.transaction(IMAGE_TABLE, "readwrite").objectStore(IMAGE_TABLE);
    for (const id of /** @type {string[]} */ (await done(table.getAllKeys()))) {
      if (!used.has(id) && Date.now() - addedAt(id) > UNUSED_MS) table.delete(id);
    }
  }
}

/**
 * @param {string} name
 * @param {string} table
 * @param {IDBObjectStoreParameters} [options]
 * @returns {Promise<IDBDatabase>}
 */
function openDatabase(name, table, options) {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(table, options);
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
