// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { Api } from "./api.js";
import { BatchesView } from "./batches_view.js";
import { ChatView } from "./chat_view.js";
import { Chats } from "./chats.js";
import { openSettings, promptForKey } from "./dialogs.js";
import { byId, fill, h, icon, iconButton } from "./dom.js";
import { openExchange } from "./exchange_view.js";
import { search } from "./search.js";
import { ServerView } from "./server_view.js";
import { Session } from "./session.js";
import { ConversationStore, ImageStore, recall, remember } from "./store.js";
import { toast } from "./toast.js";

const VIEWS = /** @type {const} */ ([["chat", "Chat", "chat"], ["batches", "Batches", "batch"], [
  "server",
  "Server",
  "chart",
]]);
const THEMES = ["", "light", "dark"];

const session = new Session(new Api(document.baseURI), promptForKey);
const store = new ConversationStore();
const chats = new Chats(session, store, new ImageStore());
const side = byId("side", HTMLElement);
const main = byId("main", HTMLElement);
const views = {
  chat: new ChatView(byId("chat", HTMLElement), chats, () => {
    openSettings(chats.current.settings, (settings) => chats.changeSettings(settings));
  }),
  batches: new BatchesView(byId("batches", HTMLElement), session),
  server: new ServerView(byId("server", HTMLElement), session),
};

const menu = iconButton("menu", "Menu", () => openMenu(side.dataset.open === undefined), {
  class: "quiet menu",
  "aria-expanded": "false",
  "aria-controls": "side",
});
main.prepend(menu);

/** On a narrow screen the menu covers the content. @param {boolean} open */
function openMenu(open) {
  menu.setAttribute("aria-expanded", String(open));
  if (open) side.dataset.open = "";
  else delete side.dataset.open;
  if (open) side.querySelector("a")?.focus();
}
function leaveMenu() {
  if (side.dataset.open === undefined) return;
  openMenu(false);
  menu.focus();
}
side.addEventListener("keydown", (event) => {
  if (event.key === "Escape") leaveMenu();
});
main.addEventListener("click", (event) => {
  if (event.target instanceof Node && !menu.contains(event.target)) openMenu(false);
});
// A link to the current address changes nothing, but must also close the menu.
side.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("a") !== null) leaveMenu();
});

/**
 * Returns the view that the address names: #chat, #chat/ID, #batches or #server.
 * @returns {(typeof VIEWS)[number][0]}
 */
function shownView() {
  const [name] = location.hash.slice(1).split("/");
  return VIEWS.find(([view]) => view === name)?.[0] ?? "chat";
}

function route() {
  const shown = shownView();
  const id = location.hash.split("/")[1];
  if (shown === "chat" && id !== undefined) chats.open(id);
  for (const [name, label] of VIEWS) {
    byId(name, HTMLElement).hidden = name !== shown;
    if (name === shown) document.title = `${label} · compy`;
  }
  views.batches.show(shown === "batches");
  views.server.show(shown === "server");
  fill(
    byId("views", HTMLElement),
    VIEWS.map(([name, label, drawing]) => {
      const current = name === shown ? "page" : undefined;
      return h("a", { href: `#${name}`, "aria-current": current }, icon(drawing), ` ${label}`);
    }),
  );
  showConversations();
}

/** Milliseconds after the last change of the query, after which the search starts. */
const QUERY_MS = 150;

const query = h("input", {
  type: "search",
  class: "query",
  "aria-label": "Search conversations",
  placeholder: "Search",
});
const found = h("p", { class: "hint", role: "status" });
const links = h("ul", { class: "plain" });
fill(
  byId("conversations", HTMLElement),
  h("button", { type: "button", class: "begin", onclick: beginChat }, icon("plus"), " New conversation"),
  query,
  found,
  links,
);
let queried = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
query.addEventListener("input", () => {
  clearTimeout(queried);
  queried = setTimeout(showConversations, QUERY_MS);
});
query.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && query.value !== "") event.stopPropagation();
});

function showConversations() {
  const shown = shownView() === "chat";
  const hits = search(chats.list, query.value);
  const items = hits.map(({ conversation, excerpt }) => {
    const current = shown && conversation === chats.current ? "true" : undefined;
    const writing = chats.runs.has(conversation.id) &&
      h("span", { class: "pulse", role: "img", "aria-label": "is being answered" });
    const said = excerpt &&
      h("span", { class: "excerpt" }, excerpt.before, h("mark", {}, excerpt.match), excerpt.after);
    return h(
      "li",
      {},
      h(
        "a",
        { href: `#chat/${conversation.id}`, "aria-current": current },
        conversation.title,
        writing,
        said,
      ),
    );
  });
  query.hidden = chats.list.length === 0;
  const said = query.value.trim() === "" ? "" : `${hits.length} of ${chats.list.length} conversations`;
  if (found.textContent !== said) found.textContent = said;
  const focused = document.activeElement;
  const at = links.contains(focused)
    ? [...links.querySelectorAll("a")].findIndex((link) => link === focused)
    : -1;
  fill(links, items);
  links.querySelectorAll("a")[at]?.focus();
}

function beginChat() {
  openMenu(false);
  chats.begin();
  if (location.hash !== "#chat") location.hash = "#chat";
  views.chat.focus();
}

/** Puts the open conversation into the address, so that a reload shows it again. */
function keepAddress() {
  if (shownView() !== "chat") return;
  const saved = chats.list.includes(chats.current);
  const hash = saved ? `#chat/${chats.current.id}` : "#chat";
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

function showTheme() {
  const theme = recall("theme");
  if (theme === "") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const name = { "": "as the system", light: "light", dark: "dark" }[theme];
  fill(
    byId("foot", HTMLElement),
    h("button", { type: "button", class: "quiet", onclick: changeTheme }, icon("theme"), ` Colours: ${name}`),
    h("button", { type: "button", class: "quiet", onclick: changeKey }, icon("key"), " Key"),
    h(
      "button",
      { type: "button", class: "quiet", onclick: () => openExchange(chats) },
      icon("download"),
      " Export and import",
    ),
  );
}

function changeTheme() {
  const next = THEMES[(THEMES.indexOf(recall("theme")) + 1) % THEMES.length];
  remember("theme", next);
  showTheme();
  byId("foot", HTMLElement).querySelector("button")?.focus();
}

async function changeKey() {
  if (await session.askForKey("Every request of this page will carry it.")) loadModels();
}

function showConnection() {
  const banner = byId("banner", HTMLElement);
  banner.hidden = session.connected;
  banner.textContent = session.connected
    ? ""
    : "The server does not answer. Look whether it runs; this page goes on by itself when it is back.";
  if (session.connected) loadModels();
}

async function loadModels() {
  try {
    await session.loadModels();
  } catch (error) {
    if (session.connected) toast(error instanceof Error ? error.message : String(error));
  }
}

chats.addEventListener("list", () => {
  keepAddress();
  showConversations();
});
session.addEventListener("connection", showConnection);
addEventListener("hashchange", () => {
  openMenu(false);
  route();
  if (shownView() !== "chat") main.focus();
});
// A dropped file starts a batch, except images in a conversation. Without this, the browser would leave the page and
// open the file.
addEventListener("dragover", (event) => {
  if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
});
addEventListener("drop", (event) => {
  const file = event.dataTransfer?.files[0];
  if (event.defaultPrevented || !file) return;
  event.preventDefault();
  location.hash = "#batches";
  views.batches.choose(file);
});
addEventListener("pagehide", () => chats.flush());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) chats.flush();
  else {
    chats.refresh();
    if (session.connected) loadModels();
  }
});

showTheme();
await chats.load();
route();
views.chat.focus();
loadModels();
if (!(await store.lasts())) toast("This browser keeps no data for the page: conversations end with it.");
