// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { fill, h, iconButton } from "./dom.js";
import { FIELDS, problemOf } from "./settings.js";

/** @typedef {import("./settings.js").Field} Field */

/**
 * Asks the user for the server's key. Returns undefined if none is given.
 * @param {string} reason
 * @returns {Promise<{ key: string, keep: boolean } | undefined>}
 */
export function promptForKey(reason) {
  const input = h("input", {
    type: "password",
    id: "key",
    autocomplete: "off",
    spellcheck: "false",
  });
  const keep = h("input", { type: "checkbox", id: "keep" });
  /** @type {{ key: string, keep: boolean } | undefined} */
  let given;
  const dialog = h(
    "dialog",
    { class: "small", "aria-labelledby": "key-title" },
    h("h2", { id: "key-title" }, "This server wants a key"),
    h("p", {}, reason),
    h(
      "form",
      {
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          given = { key: input.value.trim(), keep: keep.checked };
          dialog.close();
        },
      },
      h("label", { for: "key" }, "Key"),
      input,
      h("label", { class: "check" }, keep, " Remember it in this browser"),
      h(
        "p",
        { class: "hint" },
        "Otherwise it is forgotten when this tab is closed. An empty key forgets the one before.",
      ),
      h(
        "div",
        { class: "row" },
        h("button", { type: "submit", class: "primary" }, "Use this key"),
        h("button", { type: "button", onclick: () => dialog.close() }, "Not now"),
      ),
    ),
  );
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Opens the settings of a conversation in a drawer. Each change takes effect at once.
 * @param {import("./settings.js").Settings} settings
 * @param {(settings: import("./settings.js").Settings) => void} onChange
 */
export function openSettings(settings, onChange) {
  let current = { ...settings };
  const change = (/** @type {string} */ name, /** @type {string} */ value) => {
    current = { ...current, [name]: value };
    onChange(current);
  };
  const body = h("div", { class: "fields" });
  const viewOf = (/** @type {Field} */ field) => fieldView(field, current[field.name] ?? "", change);
  const show = () => {
    const folded = FIELDS.filter((field) => field.folded);
    const open = folded.some(({ name }) => (current[name] ?? "") !== "");
    fill(
      body,
      FIELDS.filter((field) => !field.folded).map(viewOf),
      h(
        "details",
        { class: "setting", open },
        h("summary", {}, "More sampling settings"),
        h("div", { class: "fields" }, folded.map(viewOf)),
      ),
    );
  };
  const reset = () => {
    current = {};
    onChange(current);
    show();
  };
  const dialog = h(
    "dialog",
    { class: "drawer", "aria-labelledby": "settings-title" },
    h(
      "div",
      { class: "bar" },
      h("h2", { id: "settings-title" }, "Settings"),
      iconButton("close", "Close the settings", () => dialog.close()),
    ),
    h("p", { class: "hint" }, "Of this conversation, and of new ones. What is empty is left to the server."),
    body,
    h("button", { type: "button", onclick: reset }, "Empty all"),
  );
  show();
  dialog.addEventListener("close", () => dialog.remove());
  // A click outside the drawer closes it.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * @param {Field} field
 * @param {string} value
 * @param {(name: string, value: string) => void} change
 */
function fieldView(field, value, change) {
  const { name, label, hint } = field;
  const input = inputOf(field, value);
  const problem = h("p", { class: "problem", id: `${name}-problem`, "aria-live": "polite" });
  const look = () => {
    const wrong = problemOf(field, input.value);
    problem.textContent = wrong ? `${label} ${wrong}; it is not sent.` : "";
    input.setAttribute("aria-invalid", String(wrong !== undefined));
  };
  input.addEventListener("input", () => {
    look();
    change(name, input.value);
  });
  look();
  return h(
    "div",
    { class: field.kind === "number" ? "setting number" : "setting" },
    h("label", { for: `setting-${name}` }, label),
    input,
    h("p", { class: "hint", id: `${name}-hint` }, hint),
    problem,
  );
}

/**
 * @param {Field} field
 * @param {string} value
 */
function inputOf({ name, kind, choices = [], placeholder }, value) {
  const common = {
    id: `setting-${name}`,
    placeholder,
    "aria-describedby": `${name}-hint ${name}-problem`,
    spellcheck: kind === "text" ? undefined : "false",
  };
  if (kind === "choice") {
    const select = h("select", common, choices.map(([value, text]) => h("option", { value }, text)));
    select.value = value;
    return select;
  }
  if (kind === "number") {
    const input = h("input", { ...common, inputmode: "decimal", autocomplete: "off" });
    input.value = value;
    return input;
  }
  const rows = kind === "json" ? 5 : 3;
  const area = h("textarea", { ...common, rows, class: kind === "json" ? "json" : undefined });
  area.value = value;
  return area;
}
