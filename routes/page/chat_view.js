// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { Attachments } from "./attachments.js";
import { answerCall, imagesOf, openCalls, replaceFrom, say } from "./conversation.js";
import { announce, arrange, fill, h, icon, iconButton } from "./dom.js";
import { openExchange } from "./exchange_view.js";
import { count } from "./format.js";
import { AnswerView, toolView, userView } from "./message_view.js";
import { modelLabel } from "./models.js";
import { toast } from "./toast.js";
import { beginVersion, versionsAt } from "./versions.js";

/** @typedef {import("./conversation.js").Answer} Answer */

/** If the reader is this near to the end, in CSS pixels, the view follows the growing answer. */
const NEAR_END = 80;

/** The open conversation: its messages and the input. */
export class ChatView {
  #title = h("button", { type: "button", class: "title", id: "chat-title", title: "Rename" });
  #models = h("select", { "aria-label": "Model", class: "models" });
  #log = h("div", {
    class: "log",
    role: "log",
    "aria-live": "off",
    "aria-label": "Conversation",
    tabindex: 0,
  });
  #input = h("textarea", { id: "prompt", rows: 1, "aria-label": "Message", placeholder: "Ask something" });
  #send = h(
    "button",
    { type: "submit", class: "round primary", "aria-label": "Send", title: "Send" },
    icon("send"),
  );
  #stop = h(
    "button",
    { type: "button", class: "round", "aria-label": "Stop", title: "Stop (Esc)" },
    icon("stop"),
  );
  #note = h("p", { class: "note" });
  #attachments;
  #context = h("span", { class: "context" });
  /** @type {AnswerView | undefined} */
  #growing;
  /** The views of the answers that are shown. @type {Map<Answer, AnswerView>} */
  #answers = new Map();
  #drawn = 0;
  /** How many characters of the answer have been announced. */
  #spoken = 0;

  /**
   * @param {HTMLElement} element
   * @param {import("./chats.js").Chats} chats
   * @param {() => void} openSettings
   */
  constructor(element, chats, openSettings) {
    this.element = element;
    this.chats = chats;
    this.#attachments = new Attachments(
      chats.images,
      () => imagesOf(chats.current.messages).length,
      () => chats.session.whyNoImages(chats.current.model),
    );
    element.addEventListener("drop", (event) => this.#attachments.take(event));
    fill(element, this.#header(openSettings), this.#log, this.#composer());
    chats.addEventListener("conversation", () => this.#show());
    chats.addEventListener("answer", () => this.#drawSoon());
    chats.session.addEventListener("models", () => this.#showModels());
    element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && chats.run) chats.stop();
    });
    document.addEventListener("visibilitychange", () => this.#drawSoon());
    this.#show();
  }

  focus() {
    this.#input.focus();
  }

  /** @param {() => void} openSettings */
  #header(openSettings) {
    this.#title.addEventListener("click", () => this.#rename());
    this.#models.addEventListener("change", () => {
      this.chats.chooseModel(this.#models.value);
      this.#showModel();
    });
    return h(
      "div",
      { class: "bar" },
      h("h1", {}, this.#title),
      this.#models,
      iconButton("sliders", "Settings of this conversation", openSettings),
      iconButton("download", "Export the conversation", () => openExchange(this.chats), {
        class: "quiet when-filled",
      }),
      iconButton("trash", "Delete the conversation", () => this.#remove(), { class: "quiet when-filled" }),
    );
  }

  #composer() {
    const input = this.#input;
    input.addEventListener("input", () => this.#fit());
    input.addEventListener("keydown", (event) => {
      const touch = matchMedia("(pointer: coarse)").matches;
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch) return;
      event.preventDefault();
      this.#say();
    });
    input.addEventListener("paste", (event) => this.#attachments.take(event));
    this.#stop.addEventListener("click", () => {
      this.chats.stop();
      input.focus();
    });
    return h(
      "form",
      {
        class: "composer",
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          this.#say();
        },
      },
      this.#note,
      this.#attachments.element,
      h("div", { class: "field" }, this.#attachments.button, input, this.#send, this.#stop),
      h(
        "p",
        { class: "under" },
        h(
          "span",
          { class: "keys" },
          h("kbd", {}, "Enter"),
          " sends, ",
          h("kbd", {}, "Shift Enter"),
          " breaks the line, ",
          h("kbd", {}, "Esc"),
          " stops",
        ),
        this.#context,
      ),
    );
  }

  /** Fits the input's height to its text, up to the limit in CSS. */
  #fit() {
    this.#input.style.height = "auto";
    this.#input.style.height = `${this.#input.scrollHeight}px`;
  }

  #say() {
    const { adding } = this.#attachments;
    if (adding) return void adding.then(() => this.#say());
    const text = this.#input.value;
    const { chats } = this;
    const empty = text.trim() === "" && this.#attachments.count === 0;
    if (empty || chats.run || openCalls(chats.current).length > 0) return;
    this.#input.value = "";
    this.#fit();
    say(chats.current, text, this.#attachments.release());
    chats.answer();
    this.#toEnd();
  }

  /** Draws all messages; answers that were shown before keep their elements. */
  #show() {
    const { current, run } = this.chats;
    const stay = this.#nearEnd();
    this.#title.textContent = current.title;
    this.element.classList.toggle("filled", current.messages.length > 0);
    /** @type {Map<Answer, AnswerView>} */
    const answers = new Map();
    const views = current.messages.map((message, index) => {
      if (message.role === "user") return userView(message, this.#versions(index), this.#actions);
      if (message.role === "tool") return toolView(message);
      const view = this.#answers.get(message) ?? new AnswerView(message, this.#actions);
      answers.set(message, view);
      const last = index === current.messages.length - 1;
      view.show(last ? run : undefined, openCalls(current), this.#place(index));
      if (last) this.#growing = view;
      return view.element;
    });
    if (current.messages.length === 0) this.#growing = undefined;
    this.#answers = answers;
    arrange(this.#log, views.length > 0 ? views : [this.#welcome()]);
    this.#showModels();
    this.#showState();
    if (stay) this.#toEnd();
    this.#speak();
  }

  /** @param {number} index of a message */
  #place(index) {
    const { messages, settings } = this.chats.current;
    return {
      last: index === messages.length - 1,
      form: (settings.response_format ?? "").trim() !== "",
      versions: this.#versions(index),
    };
  }

  /** @param {number} index of a message */
  #versions(index) {
    const { current, run } = this.chats;
    return { ...versionsAt(current, index), fixed: run !== undefined };
  }

  #welcome() {
    return h(
      "div",
      { class: "welcome" },
      h("img", { src: "page/icon.svg", alt: "", width: 72, height: 72 }),
      h("h2", {}, "What would you like to know?"),
      h("p", {}, "Conversations stay in this browser. Nothing is asked of any other server than this one."),
    );
  }

  #drawSoon() {
    if (this.#drawn !== 0) return;
    this.#drawn = requestAnimationFrame(() => {
      this.#drawn = 0;
      const stay = this.#nearEnd();
      const { current, run } = this.chats;
      this.#growing?.show(run, openCalls(current), this.#place(current.messages.length - 1));
      if (stay) this.#toEnd();
      this.#speak();
    });
  }

  #nearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#log;
    return scrollHeight - scrollTop - clientHeight < NEAR_END;
  }

  #toEnd() {
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** Announces the answer to screen readers, one paragraph at a time, and the rest at the end. */
  #speak() {
    const { run, current } = this.chats;
    const answer = current.messages.at(-1);
    if (!run || answer?.role !== "assistant") {
      if (this.#growing && this.#spoken >= 0 && answer?.role === "assistant") {
        const rest = answer.content.slice(this.#spoken).trim();
        if (rest !== "") announce(rest);
      }
      this.#spoken = -1; // earlier answers are not announced
      return;
    }
    this.#spoken = Math.max(this.#spoken, 0);
    const end = answer.content.lastIndexOf("\n\n");
    if (end <= this.#spoken) return;
    announce(answer.content.slice(this.#spoken, end).trim());
    this.#spoken = end;
  }

  #showState() {
    const { current, run } = this.chats;
    const calls = openCalls(current);
    const waits = calls.length > 0 && !run;
    this.#send.hidden = run !== undefined;
    this.#stop.hidden = run === undefined;
    this.#input.disabled = waits;
    fill(
      this.#note,
      waits &&
        (calls.length === 1
          ? "The model calls a function. Give its result above, and it goes on."
          : `The model calls ${calls.length} functions. Give their results above, and it goes on.`),
    );
    this.#note.hidden = !waits;
    this.#showModel();
  }

  /** Shows whether the model reads images, and how much of its context is in use. */
  #showModel() {
    const { current, session } = this.chats;
    this.#attachments.button.hidden = session.whyNoImages(current.model) !== "";
    const { context } = session.models.find(({ id }) => id === current.model) ?? {};
    const answer = current.messages.findLast((message) => message.role === "assistant" && message.usage);
    const usage = answer?.role === "assistant" ? answer.usage : null;
    if (!usage || !context) return fill(this.#context);
    const used = usage.promptTokens + usage.answerTokens;
    fill(
      this.#context,
      h("meter", { min: 0, max: context, high: context * 0.9, value: used, "aria-label": "Context in use" }),
      ` ${count(used)} of ${count(context)} tokens of context`,
    );
  }

  #showModels() {
    const { current, session } = this.chats;
    const { models } = session;
    if (
      !models.some(({ id }) => id === current.model) && models.length > 0 && current.messages.length === 0
    ) {
      current.model = models[0].id;
    }
    const gone = current.model !== "" && !models.some(({ id }) => id === current.model);
    fill(
      this.#models,
      models.length === 0 && h("option", { value: "" }, "no model yet"),
      gone && h("option", { value: current.model }, `${current.model} (not served)`),
      models.map((model) => h("option", { value: model.id }, modelLabel(model))),
    );
    this.#models.value = current.model;
    this.#showModel();
  }

  /** @type {import("./message_view.js").MessageActions} */
  #actions = {
    edit: async (message, content, images) => {
      const { current } = this.chats;
      await this.chats.stop();
      replaceFrom(current, current.messages.indexOf(message), content, images);
      this.#answer(current);
    },
    regenerate: async (message) => {
      const { current } = this.chats;
      await this.chats.stop();
      beginVersion(current, current.messages.indexOf(message));
      this.#answer(current);
    },
    showVersion: (message, number) => {
      const index = this.chats.current.messages.indexOf(message);
      const top = () => this.#log.children[index].getBoundingClientRect().top;
      const before = top();
      const label = document.activeElement?.getAttribute("aria-label");
      this.chats.showVersion(index, number);
      this.#log.scrollTop += top() - before;
      const versions = this.#log.children[index].querySelector(".versions");
      const buttons = [...versions?.querySelectorAll("button") ?? []].filter(({ disabled }) => !disabled);
      (buttons.find((button) => button.getAttribute("aria-label") === label) ?? buttons[0])?.focus();
      announce(versions?.getAttribute("aria-label") ?? "");
    },
    resume: () => this.#answer(),
    giveResult: (call, result) => {
      const { current } = this.chats;
      answerCall(current, call, result);
      if (openCalls(current).length === 0) this.#answer();
      else this.#show();
    },
  };

  /** @param {import("./conversation.js").Conversation} [conversation] default: the open one */
  #answer(conversation) {
    this.chats.answer(conversation);
    this.focus();
  }

  #rename() {
    const input = h("input", { class: "title", "aria-label": "Name of the conversation", maxlength: 200 });
    input.value = this.chats.current.title;
    let left = false;
    const leave = (/** @type {boolean} */ keep) => {
      if (left) return;
      left = true;
      input.replaceWith(this.#title);
      if (keep && input.value !== this.chats.current.title) this.chats.rename(input.value);
      this.#title.focus();
    };
    input.addEventListener("blur", () => leave(true));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.stopPropagation();
      event.preventDefault();
      leave(event.key === "Enter");
    });
    this.#title.replaceWith(input);
    input.select();
  }

  #remove() {
    const { title } = this.chats.current;
    const undo = this.chats.remove();
    this.focus();
    toast(`“${title}” is deleted.`, { label: "Undo", action: undo });
  }
}
