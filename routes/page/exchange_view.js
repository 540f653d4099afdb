// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { exported } from "./conversation.js";
import { h, iconButton, saveBlob } from "./dom.js";
import { asMarkdown, checkSize, exportedFile, importedFile, MAX_IMAGES } from "./exchange.js";
import { fileName } from "./format.js";
import { toast } from "./toast.js";
import { everyMessage } from "./versions.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {(images: Map<string, string>) => string} TextOf returns a file's text, with the data URLs of images
 */

/**
 * Opens a dialog that exports the open conversation or all of them, and imports a file.
 * @param {import("./chats.js").Chats} chats
 */
export function openExchange(chats) {
  const { current } = chats;
  /** @type {(title: string, extension: string, conversations: readonly Conversation[], text: TextOf) => () => void} */
  const save = (title, extension, conversations, text) => async () => {
    await saveText(fileName(title, extension), conversations, text, chats);
    dialog.close();
  };
  const button = (/** @type {string} */ label, /** @type {() => void} */ onclick, disabled = false) =>
    h("button", { type: "button", onclick, disabled }, label);
  const empty = current.messages.length === 0;
  const problem = h("p", { class: "problem", role: "alert" });
  const choose = h("input", {
    type: "file",
    accept: ".json,application/json",
    class: "unseen",
    tabindex: -1,
    "aria-label": "File to import",
    onchange: async () => {
      const file = choose.files?.[0];
      choose.value = "";
      if (!file) return;
      problem.textContent = await importFrom(file, chats);
      if (problem.textContent === "") dialog.close();
    },
  });
  const dialog = h(
    "dialog",
    { class: "small exchange", "aria-labelledby": "exchange-title" },
    h(
      "div",
      { class: "row" },
      h("h2", { id: "exchange-title", class: "fill" }, "Export and import"),
      iconButton("close", "Close", () => dialog.close()),
    ),
    h("h3", {}, "This conversation"),
    h(
      "div",
      { class: "row" },
      button(
        "JSON",
        save(current.title, "json", [current], (images) => exportedFile([current], images)),
        empty,
      ),
      button("Markdown", save(current.title, "md", [], () => asMarkdown(current)), empty),
      button(
        "Request",
        save(`${current.title} request`, "json", [current], (images) => exported(current, images)),
        empty,
      ),
    ),
    h("p", { class: "hint" }, "JSON has all versions and can be imported. A request is what the API takes."),
    h("h3", {}, "All conversations"),
    h(
      "div",
      { class: "row" },
      button(
        "Export all",
        save("compy conversations", "json", chats.list, (images) => exportedFile(chats.list, images)),
        chats.list.length === 0,
      ),
      button("Import a file", () => choose.click()),
      choose,
    ),
    problem,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Saves a text file. `text` returns its content, given the data URLs of the conversations' images.
 * @param {string} name
 * @param {readonly Conversation[]} conversations
 * @param {TextOf} text
 * @param {import("./chats.js").Chats} chats
 */
async function saveText(name, conversations, text, chats) {
  const messages = conversations.flatMap((conversation) => [...everyMessage(conversation)]);
  const { urls, missing } = await chats.imageUrls(messages, MAX_IMAGES);
  saveBlob(name, new Blob([text(urls)], { type: "application/octet-stream" }));
  if (missing.length === 0) return;
  toast(
    `${missing.length} images are not in the file: all images together are too large, or the browser no longer has them.`,
  );
}

/**
 * Returns what is wrong with the file, or "" if its conversations are added.
 * @param {File} file
 * @param {import("./chats.js").Chats} chats
 */
async function importFrom(file, chats) {
  try {
    checkSize(file.size);
    const { conversations, images } = importedFile(await file.text());
    const added = await chats.add(conversations);
    for (const [id, blob] of added > 0 ? images : []) await chats.images.put(id, blob);
    const rest = conversations.length - added;
    toast(`${added} imported${rest > 0 ? `, ${rest} here already` : ""}.`);
    return "";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
