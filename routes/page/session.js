// @ts-check
/// <reference lib="dom" />
import { Failure } from "./api.js";
import { modelsOf } from "./models.js";
import { recall, remember } from "./store.js";

/** Pauses in milliseconds between attempts to reach a lost server. */
const PAUSES = [1000, 2000, 4000, 8000];

/**
 * The server state that all views share: the key, the models, and whether the server answers. Events: "models" and
 * "connection".
 */
export class Session extends EventTarget {
  /** @type {import("./models.js").Model[]} */
  models = [];
  connected = true;
  #asking = /** @type {Promise<boolean> | undefined} */ (undefined);

  /**
   * @param {import("./api.js").Api} api
   * @param {(reason: string) => Promise<{ key: string, keep: boolean } | undefined>} promptForKey
   */
  constructor(api, promptForKey) {
    super();
    this.api = api;
    this.promptForKey = promptForKey;
    api.key = recall("key", sessionStorage) || recall("key");
  }

  /**
   * Runs a request to the server; asks for the key first if it is missing or wrong. Throws Failure.
   * @template T
   * @param {() => Promise<T>} action
   * @returns {Promise<T>}
   */
  async call(action) {
    for (;;) {
      const { key } = this.api;
      try {
        const value = await action();
        this.#reached();
        return value;
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (error.kind === "network") this.lost();
        else this.#reached();
        if (error.kind !== "key") throw error;
        // Another call may have asked for the key meanwhile.
        if (key === this.api.key && !(await this.askForKey(error.message))) throw error;
      }
    }
  }

  /**
   * Asks the user for a key. Returns false if none is given.
   * @param {string} reason
   */
  askForKey(reason) {
    return this.#asking ??= this.#ask(reason).finally(() => this.#asking = undefined);
  }

  /** @param {string} reason */
  async #ask(reason) {
    const given = await this.promptForKey(reason);
    if (!given) return false;
    this.api.key = given.key;
    remember("key", given.key, sessionStorage);
    remember("key", given.keep ? given.key : "");
    return true;
  }

  /** Loads the list of models. Throws Failure. */
  async loadModels() {
    this.models = modelsOf(await this.call(() => this.api.json("v1/models")));
    this.dispatchEvent(new Event("models"));
  }

  /** Returns the reason why a model reads no images; "" if it reads them, or is not loaded yet. @param {string} model */
  whyNoImages(model) {
    const reads = this.models.find(({ id }) => id === model)?.images ?? true;
    return reads ? "" : `${model} reads text only.`;
  }

  #reached() {
    if (this.connected) return;
    this.connected = true;
    this.dispatchEvent(new Event("connection"));
  }

  /** Marks the server as lost, and polls it until it answers. */
  async lost() {
    if (!this.connected) return;
    this.connected = false;
    this.dispatchEvent(new Event("connection"));
    for (let i = 0; !this.connected; i++) {
      await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(i, PAUSES.length - 1)]));
      if (!document.hidden) await this.look();
    }
  }

  /** Any answer, also an error, shows that the server is there. */
  async look() {
    try {
      await this.api.send("health");
      this.#reached();
    } catch (error) {
      if (error instanceof Failure && error.kind !== "network") this.#reached();
    }
  }
}
