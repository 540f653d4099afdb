// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { exported } from "./conversation.js";
import { h, iconButton, saveBlob } from "./dom.js";
import { asMarkdown, checkSize, exportedFile, importedFile } from "./exchange.js";
import { fileName } from "./format.js";
import { toast } from "./toast.js";

/**
 * Opens a dialog that exports the open conversation or all of them, and imports a file.
 * @param {import("./chats.js").Chats} chats
 */
export function openExchange(chats) {
  const { current } = chats;
  const save =
    (/** @type {string} */ title, /** @type {string} */ extension, /** @type {() => string} */ text) =>
    () => {
      saveBlob(fileName(title, extension), new Blob([text()], { type: "application/octet-stream" }));
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
      button("JSON", save(current.title, "json", () => exportedFile([current])), empty),
      button("Markdown", save(current.title, "md", () => asMarkdown(current)), empty),
      button("Request", save(`${current.title} request`, "json", () => exported(current)), empty),
    ),
    h("p", { class: "hint" }, "JSON has all versions and can be imported. A request is what the API takes."),
    h("h3", {}, "All conversations"),
    h(
      "div",
      { class: "row" },
      button(
        "Export all",
        save("compy conversations", "json", () => exportedFile(chats.list)),
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
 * Returns what is wrong with the file, or "" if its conversations are added.
 * @param {File} file
 * @param {import("./chats.js").Chats} chats
 */
async function importFrom(file, chats) {
  try {
    checkSize(file.size);
    const imported = importedFile(await file.text());
    const added = await chats.add(imported);
    const rest = imported.length - added;
    toast(`${added} imported${rest > 0 ? `, ${rest} here already` : ""}.`);
    return "";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
