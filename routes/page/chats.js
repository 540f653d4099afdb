// @ts-check
/// <reference lib="dom" />
import { adviceFor, Failure } from "./api.js";
import {
  AnswerReader,
  imagesOf,
  nameByFirstWords,
  newAnswer,
  newConversation,
  requestBody,
} from "./conversation.js";
import { dataUrlOf } from "./images.js";
import { recall, remember } from "./store.js";
import { showVersion } from "./versions.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./conversation.js").Answer} Answer
 * @typedef {{ abort: AbortController, note: string, rate: number | undefined, ended: Promise<void> }} Run
 */

/** How often the page tries a request to a busy server before it gives up. */
const ATTEMPTS = 5;
const SAVE_MS = 1000;

/**
 * All conversations, and the answers that are being written. Events: "list" (titles, order), "conversation" (the open
 * one changes), "answer" (its last answer grew).
 */
export class Chats extends EventTarget {
  /** @type {Conversation[]} */
  list = [];
  /** Running answers by conversation id. @type {Map<string, Run>} */
  runs = new Map();
  #timers = /** @type {Map<string, ReturnType<typeof setTimeout>>} */ (new Map());

  /**
   * @param {import("./session.js").Session} session
   * @param {import("./store.js").ConversationStore} store
   * @param {import("./store.js").ImageStore} images
   */
  constructor(session, store, images) {
    super();
    this.session = session;
    this.store = store;
    this.images = images;
    this.current = this.#fresh();
  }

  async load() {
    this.list = await this.store.all();
    // Only with readable conversations: without them, every image would seem unused.
    if (await this.store.lasts()) this.images.clean(this.list).catch(() => {});
  }

  /** Loads changes that another tab has saved. */
  async refresh() {
    if (this.runs.size > 0 || this.#timers.size > 0) return;
    this.list = await this.store.all();
    const { id, updated } = this.current;
    const found = this.list.find((conversation) => conversation.id === id);
    if (found) this.current = found;
    this.#tell("list");
    if (found && found.updated !== updated) this.#tell("conversation");
  }

  /** @returns {Conversation} */
  #fresh() {
    return newConversation(recall("model"), lastSettings(), Date.now());
  }

  begin() {
    this.current = this.#fresh();
    this.#tell("list");
    this.#tell("conversation");
  }

  /**
   * Opens another conversation, or a new one if the id does not exist.
   * @param {string} id
   */
  open(id) {
    if (id === this.current.id) return;
    const found = this.list.find((conversation) => conversation.id === id);
    if (!found) return this.begin();
    this.current = found;
    this.#tell("list");
    this.#tell("conversation");
  }

  /** The answer that is being written in the open conversation, if any. */
  get run() {
    return this.runs.get(this.current.id);
  }

  /** @param {string} model */
  chooseModel(model) {
    this.current.model = model;
    remember("model", model);
    this.#keep(this.current);
  }

  /** @param {import("./settings.js").Settings} settings */
  changeSettings(settings) {
    this.current.settings = settings;
    // A system prompt belongs to its own conversation only.
    remember("settings", JSON.stringify({ ...settings, system: "" }));
    this.#keep(this.current);
  }

  /**
   * Shows another version of the open conversation.
   * @param {number} index of the first message that differs
   * @param {number} number of the version, from 0
   */
  showVersion(index, number) {
    showVersion(this.current, index, number);
    nameByFirstWords(this.current);
    this.#save(this.current);
    this.#tell("list");
    this.#tell("conversation");
  }

  /** @param {string} title */
  rename(title) {
    this.current.title = title.trim() || "New conversation";
    this.current.named = title.trim() !== "";
    this.#keep(this.current);
    this.#tell("list");
    this.#tell("conversation");
  }

  /**
   * Adds imported conversations and returns their number. Existing conversations do not change: an imported
   * conversation that equals an existing one is skipped, and a different one with the same id gets a new id. Throws
   * if the browser cannot store them.
   * @param {Conversation[]} imported
   */
  async add(imported) {
    /** @type {Conversation[]} */
    const added = [];
    const here = new Map(this.list.map((conversation) => [conversation.id, conversation]));
    for (const conversation of imported) {
      const known = here.get(conversation.id);
      if (known?.updated === conversation.updated) continue;
      const { id } = known ? newConversation("", {}, 0) : conversation;
      added.push({ ...conversation, id });
      here.set(id, conversation);
    }
    await this.store.put(...added);
    this.list = [...this.list, ...added].sort((a, b) => b.updated - a.updated);
    this.#tell("list");
    return added.length;
  }

  /** Removes the open conversation. Returns a function that restores it. */
  remove() {
    const removed = this.current;
    this.stop();
    const place = this.list.indexOf(removed);
    this.list = this.list.filter((conversation) => conversation !== removed);
    clearTimeout(this.#timers.get(removed.id));
    this.store.remove(removed.id).catch(() => {});
    this.begin();
    return () => {
      this.list.splice(Math.max(place, 0), 0, removed);
      this.current = removed;
      this.#keep(removed);
      this.#tell("list");
      this.#tell("conversation");
    };
  }

  /** Stops the open conversation's answer. Resolves when nothing is written to it any more. */
  async stop() {
    const { run } = this;
    run?.abort.abort(new DOMException("Stopped", "AbortError"));
    await run?.ended;
  }

  /**
   * Requests the next answer of a conversation, or the continuation of its last answer.
   * @param {Conversation} [conversation] default: the open one
   */
  async answer(conversation = this.current) {
    const { messages } = conversation;
    if (this.runs.has(conversation.id) || messages.length === 0) return;
    const last = messages[messages.length - 1];
    if (last.role === "assistant" && last.content === "" && last.calls.length === 0) messages.pop();
    const before = messages[messages.length - 1];
    const answer = before?.role === "assistant" ? before : newAnswer(conversation.model);
    if (answer !== before) messages.push(answer);
    Object.assign(answer, { trouble: null, finish: null });
    /** @type {PromiseWithResolvers<void>} */
    const { promise: ended, resolve: end } = Promise.withResolvers();
    const run = { abort: new AbortController(), note: "Waiting for the server", rate: undefined, ended };
    this.runs.set(conversation.id, run);
    if (!this.list.includes(conversation)) this.list.unshift(conversation);
    this.#tell("list");
    this.#tell("conversation");
    this.#keep(conversation);
    await this.#write(conversation, answer, run);
    this.runs.delete(conversation.id);
    end();
    conversation.updated = Date.now();
    await this.#save(conversation);
    this.#tell("list");
    if (conversation === this.current) this.#tell("conversation");
    // This request may have loaded the model.
    const { models } = this.session;
    if (models.find(({ id }) => id === conversation.model)?.state !== "ready") {
      this.session.loadModels().catch(() => {});
    }
  }

  /**
   * Reads an answer to its end, or records in it what went wrong. Waits and retries if the server asks for
   * that.
   * @param {Conversation} conversation
   * @param {Answer} answer
   * @param {Run} run
   */
  async #write(conversation, answer, run) {
    let body = /** @type {object | undefined} */ (undefined);
    for (let attempt = 1;; attempt++) {
      try {
        const asked = body ??= requestBody(conversation, await this.#imagesOf(conversation));
        // After a wrong key, the session asks for another and sends the request again.
        return await this.session.call(() => this.#read(conversation, answer, asked, run));
      } catch (error) {
        if (run.abort.signal.aborted) {
          answer.finish = "stopped";
          return;
        }
        const failure = error instanceof Failure ? error : new Failure("failed", String(error));
        const again = failure.kind === "wait" && attempt < ATTEMPTS;
        if (!again) {
          answer.trouble = { text: failure.message, advice: adviceFor(failure), kind: failure.kind };
          if (failure.code === "model_not_found") this.session.loadModels().catch(() => {});
          return;
        }
        await this.#pause(conversation, failure, run);
      }
    }
  }

  /**
   * @param {Conversation} conversation
   * @param {Answer} answer
   * @param {object} body
   * @param {Run} run
   */
  async #read(conversation, answer, body, run) {
    const reader = new AnswerReader(answer, performance.now());
    const { signal } = run.abort;
    for await (const chunk of this.session.api.stream("v1/chat/completions", { body, signal })) {
      const progress = reader.read(chunk, performance.now());
      run.rate = reader.rate;
      run.note = progress && progress.processed < progress.total
        ? `Reading ${progress.processed} of ${progress.total} tokens`
        : answer.firstTokenMs === null
        ? run.note
        : "Answering";
      this.#keep(conversation);
      if (conversation === this.current) this.#tell("answer");
    }
  }

  /**
   * Returns the conversation's images as data URLs by id. Throws Failure if one is gone, or if the model reads none.
   * @param {Conversation} conversation
   */
  async #imagesOf({ model, messages }) {
    const { urls, missing: [gone] } = await this.imageUrls(messages);
    const refusal = urls.size === 0 ? "" : this.session.whyNoImages(model);
    if (refusal !== "") throw new Failure("refused", refusal, { code: "unsupported_content" });
    if (!gone) return urls;
    throw new Failure("refused", `This browser no longer has the image ${gone.name}.`, {
      code: "image_gone",
    });
  }

  /**
   * Returns the messages' images as data URLs by id, and the images that are gone or do not fit.
   * @param {readonly import("./conversation.js").Message[]} messages
   * @param {number} most maximum characters of all data URLs
   */
  async imageUrls(messages, most = Infinity) {
    /** @type {Map<string, string>} */
    const urls = new Map();
    const missing = [];
    for (const image of imagesOf(messages)) {
      if (urls.has(image.id)) continue;
      const blob = await this.images.get(image.id);
      const url = blob && blob.size < most ? await dataUrlOf(blob) : "";
      if (url === "" || url.length > most) missing.push(image);
      else urls.set(image.id, url);
      if (urls.has(image.id)) most -= url.length;
    }
    return { urls, missing };
  }

  /**
   * @param {Conversation} conversation
   * @param {Failure} failure
   * @param {Run} run
   */
  async #pause(conversation, failure, run) {
    for (let left = failure.retrySeconds ?? 1; left > 0 && !run.abort.signal.aborted; left--) {
      run.note = `${failure.message} ${adviceFor(failure, left)}`;
      if (conversation === this.current) this.#tell("answer");
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 1000);
        run.abort.signal.addEventListener("abort", () => {
          clearTimeout(timer);
          resolve(undefined);
        }, { once: true });
      });
    }
    run.note = "Waiting for the server";
  }

  /**
   * Saves a conversation after a delay: an answer changes often while it is written.
   * @param {Conversation} conversation
   */
  #keep(conversation) {
    if (!this.list.includes(conversation) || this.#timers.has(conversation.id)) return;
    this.#timers.set(conversation.id, setTimeout(() => this.#save(conversation), SAVE_MS));
  }

  /** @param {Conversation} conversation */
  async #save(conversation) {
    clearTimeout(this.#timers.get(conversation.id));
    this.#timers.delete(conversation.id);
    if (this.list.includes(conversation)) await this.store.put(conversation).catch(() => {});
  }

  /** Saves at once all conversations that wait for their delayed save. */
  flush() {
    for (const conversation of this.list) if (this.#timers.has(conversation.id)) this.#save(conversation);
  }

  /** @param {"list" | "conversation" | "answer"} name */
  #tell(name) {
    this.dispatchEvent(new Event(name));
  }
}

/** @returns {import("./settings.js").Settings} */
function lastSettings() {
  try {
    return JSON.parse(recall("settings") || "{}");
  } catch {
    return {};
  }
}
