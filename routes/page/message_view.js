// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { imageList, removableImages } from "./attachments.js";
import { CodeView } from "./code_view.js";
import { canContinue } from "./conversation.js";
import { copyButton, fill, h, icon, iconButton } from "./dom.js";
import { count, duration, rate } from "./format.js";
import { GrowingText } from "./render.js";

/**
 * @typedef {import("./conversation.js").Message} Message
 * @typedef {import("./conversation.js").Answer} Answer
 * @typedef {import("./conversation.js").Call} Call
 * @typedef {import("./images.js").Image} Image
 */

/**
 * Actions on messages.
 * @typedef {object} MessageActions
 * @property {(message: Message, content: string, images: readonly Image[]) => void} edit replaces a message of the user and the messages after it
 * @property {(message: Message) => void} regenerate an answer
 * @property {() => void} resume the last answer
 * @property {(call: Call, result: string) => void} giveResult
 * @property {(message: Message, number: number) => void} showVersion
 */

/**
 * Which version of a message is shown, how many there are, and whether another one can be shown now.
 * @typedef {{ shown: number, count: number, fixed: boolean }} Versions
 */

/**
 * Shows a user message, which can be edited and sent again.
 * @param {import("./conversation.js").UserMessage} message
 * @param {Versions} versions
 * @param {MessageActions} actions
 */
export function userView(message, versions, actions) {
  const { images = [] } = message;
  const said = [
    images.length > 0 && imageList(images),
    message.content !== "" && h("div", { class: "said" }, message.content),
  ];
  const editButton = iconButton("edit", "Edit and send again", edit);
  const tools = h(
    "div",
    { class: "tools" },
    copyButton("Copy the message", () => message.content),
    editButton,
    versionsView(message, versions, actions),
  );
  const article = h("article", { class: "message user", "aria-label": "You" }, said, tools);
  return article;

  function edit() {
    const area = h("textarea", { "aria-label": "Your message", rows: 3 });
    area.value = message.content;
    const kept = removableImages(images, area);
    const send = () => {
      if (area.value.trim() !== "" || kept.images.length > 0) actions.edit(message, area.value, kept.images);
    };
    const leave = () => {
      fill(article, said, tools);
      editButton.focus();
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        leave();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    fill(
      article,
      h(
        "form",
        {
          class: "edit",
          onsubmit: (/** @type {Event} */ event) => {
            event.preventDefault();
            send();
          },
        },
        kept.element,
        area,
        h("p", { class: "hint" }, "The earlier version, and what came after it, are kept."),
        h(
          "div",
          { class: "row" },
          h("button", { type: "submit", class: "primary" }, "Send again"),
          h("button", { type: "button", onclick: leave }, "Leave as it was"),
        ),
      ),
    );
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

/**
 * Shows which version of a message is shown, with buttons for the others; nothing if there is only one.
 * @param {Message} message
 * @param {Versions} versions
 * @param {MessageActions} actions
 */
function versionsView(message, { shown, count, fixed }, actions) {
  if (count < 2) return undefined;
  const button = (
    /** @type {"back" | "next"} */ drawing,
    /** @type {string} */ label,
    /** @type {number} */ number,
  ) =>
    iconButton(drawing, label, () => actions.showVersion(message, number), {
      disabled: fixed || number < 0 || number >= count,
    });
  return h(
    "span",
    { class: "versions", role: "group", "aria-label": `Version ${shown + 1} of ${count}` },
    button("back", "Earlier version", shown - 1),
    h("span", {}, `${shown + 1} / ${count}`),
    button("next", "Later version", shown + 1),
  );
}

/** @param {import("./conversation.js").ToolMessage} message */
export function toolView({ name, content }) {
  return h(
    "article",
    { class: "message tool", "aria-label": `Result of ${name}` },
    h("details", {}, h("summary", {}, "Result of ", h("code", {}, name)), new CodeView("", content).element),
  );
}

/**
 * An answer's place: whether it is the last message, and whether answers are constrained.
 * @typedef {{ last: boolean, form: boolean, versions: Versions }} Place
 */

/** Shows an answer, and updates it while it is written. */
export class AnswerView {
  #text = new GrowingText();
  #thoughts = new GrowingText();
  #thinking;
  #summary = h("summary");
  #calls = h("div", { class: "calls" });
  #note = h("span");
  /** This element stays while the answer is written, so that its animation does not restart with each token. */
  #progress = h("p", { class: "progress" }, h("span", { class: "pulse", "aria-hidden": "true" }), this.#note);
  #end = h("div", { class: "end" });
  /** Key of the calls that are shown. Unchanged calls are not drawn again, so that typing into one is not disturbed. */
  #shownCalls = "";

  /**
   * @param {Answer} answer
   * @param {MessageActions} actions
   */
  constructor(answer, actions) {
    this.answer = answer;
    this.actions = actions;
    this.#thinking = h("details", { class: "thinking", hidden: true }, this.#summary, this.#thoughts.element);
    this.element = h(
      "article",
      { class: "message answer", "aria-label": `Answer of ${answer.model || "the model"}` },
      this.#thinking,
      this.#text.element,
      this.#calls,
      this.#end,
    );
  }

  /**
   * @param {import("./chats.js").Run | undefined} run where it is being written
   * @param {readonly Call[]} open calls that wait for a result
   * @param {Place} place
   */
  show(run, open, place) {
    const { answer } = this;
    this.element.setAttribute("aria-busy", String(run !== undefined));
    this.#thinking.hidden = answer.reasoning === "";
    if (answer.reasoning !== "") {
      const still = run !== undefined && answer.content === "" && answer.calls.length === 0;
      const time = answer.thinkingMs === null ? "" : ` for ${duration(answer.thinkingMs / 1000)}`;
      const said = still ? `Thinking${time} …` : `Thought${time}`;
      if (this.#summary.textContent !== said) fill(this.#summary, said);
      this.#thoughts.show(answer.reasoning);
    }
    this.#text.show(answer.content);
    this.#showCalls(run === undefined ? open : []);
    if (!run) return fill(this.#end, this.#footer(place));
    const said = progressText(run);
    if (this.#note.textContent !== said) this.#note.textContent = said;
    if (this.#progress.parentNode !== this.#end) fill(this.#end, this.#progress);
  }

  /** @param {readonly Call[]} open */
  #showCalls(open) {
    const shown = JSON.stringify([this.answer.calls, open.map(({ id }) => id)]);
    if (shown === this.#shownCalls) return;
    this.#shownCalls = shown;
    fill(this.#calls, this.answer.calls.map((call) => callView(call, open.includes(call), this.actions)));
  }

  /** @param {Place} place */
  #footer({ last, form, versions }) {
    const { answer, actions } = this;
    const resumable = last && !form && canContinue(answer);
    return [
      answer.trouble && troubleView(answer.trouble),
      h(
        "div",
        { class: "tools" },
        copyButton("Copy the answer", () => answer.content),
        iconButton("again", answer.trouble ? "Try again" : "Answer again", () => actions.regenerate(answer)),
        resumable && iconButton("forward", "Continue the answer", () => actions.resume()),
        versionsView(answer, versions, actions),
        h("span", { class: "figures" }, figures(answer)),
      ),
    ];
  }
}

/** @param {import("./conversation.js").Trouble} trouble */
function troubleView({ text, advice }) {
  return h("div", { class: "trouble", role: "alert" }, h("p", {}, text), h("p", { class: "advice" }, advice));
}

/** @param {import("./chats.js").Run} run */
function progressText({ note, rate: speed }) {
  return speed === undefined ? note : `${note}, ${rate(speed)} tokens/s`;
}

/**
 * Returns an answer's figures as one line of text.
 * @param {Answer} answer
 */
function figures({ usage, tokensPerSecond, firstTokenMs, finish }) {
  return [
    finish === "length" && "cut at the most tokens",
    finish === "stopped" && "stopped",
    usage && `${count(usage.answerTokens)} tokens`,
    tokensPerSecond !== null && `${rate(tokensPerSecond)} tokens/s`,
    firstTokenMs !== null && `first after ${duration(firstTokenMs / 1000)}`,
    usage && usage.cachedTokens > 0 &&
    `${count(usage.cachedTokens)} of ${count(usage.promptTokens)} read before`,
  ].filter(Boolean).join(" · ");
}

/**
 * Shows a call with its arguments, and an input for its result if that is missing.
 * @param {Call} call
 * @param {boolean} open
 * @param {MessageActions} actions
 */
function callView(call, open, actions) {
  const heading = h("h2", {}, icon("forward"), "Calls ", h("code", {}, call.name || "…"));
  const section = h(
    "section",
    { class: "call" },
    heading,
    new CodeView("json", pretty(call.arguments)).element,
  );
  if (!open) return section;
  const area = h("textarea", { rows: 3, placeholder: "What the function gives back, as text or JSON" });
  const give = (/** @type {Event} */ event) => {
    event.preventDefault();
    actions.giveResult(call, area.value);
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) give(event);
  });
  section.append(h(
    "form",
    { onsubmit: give },
    h("label", {}, h("span", {}, `Result of ${call.name}`), area),
    h("button", { type: "submit", class: "primary" }, "Give this result"),
  ));
  return section;
}

/** @param {string} json */
function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // the JSON is still incomplete
  }
}
