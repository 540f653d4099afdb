// @ts-check
/// <reference lib="dom" />
import { fill, h, svg } from "./dom.js";
import { axisTop, History, linePath, parseMetrics } from "./metrics.js";
import { modelLabel } from "./models.js";
import { toast } from "./toast.js";

/** @typedef {import("./metrics.js").Point} Point */

const EVERY_MS = 1000;
/** Two minutes of values. */
const MOMENTS = 120;
const FRAME = { width: 600, height: 120, slots: MOMENTS };

/**
 * @type {readonly { title: string, unit: string, least: number, fixed?: boolean,
 *   lines: readonly { name: keyof Point, label: string }[] }[]}
 */
const PLOTS = [
  {
    title: "Speed",
    unit: "tokens/s",
    least: 10,
    lines: [{ name: "generated", label: "written" }, { name: "read", label: "read" }],
  },
  {
    title: "Requests",
    unit: "",
    least: 5,
    lines: [{ name: "running", label: "running" }, { name: "waiting", label: "waiting" }],
  },
  { title: "KV cache", unit: "%", least: 100, fixed: true, lines: [{ name: "kv", label: "in use" }] },
];

/** Shows live metrics of the server: polled once a second, only while the view is visible. */
export class ServerView {
  #history = new History(MOMENTS);
  #timer = /** @type {ReturnType<typeof setInterval> | undefined} */ (undefined);
  #shown = false;
  #busy = false;
  #state = h("p", { class: "lead" });
  #models = h("ul", { class: "plain" });
  #plots = PLOTS.map(plot);

  /**
   * @param {HTMLElement} element
   * @param {import("./session.js").Session} session
   */
  constructor(element, session) {
    this.session = session;
    fill(
      element,
      h("div", { class: "bar" }, h("h1", { id: "server-title" }, "Server")),
      h(
        "div",
        { class: "page", tabindex: 0, role: "region", "aria-label": "Live figures" },
        this.#state,
        this.#plots.map(({ element }) => element),
        h("div", {}, h("h2", {}, "Models"), this.#models),
      ),
    );
    document.addEventListener("visibilitychange", () => this.#look());
    session.addEventListener("models", () => this.#showModels());
    this.#showModels();
  }

  /** @param {boolean} shown */
  show(shown) {
    this.#shown = shown;
    this.#look();
  }

  #look() {
    clearInterval(this.#timer);
    if (!this.#shown || document.hidden) return;
    this.#ask();
    this.#timer = setInterval(() => this.#ask(), EVERY_MS);
  }

  async #ask() {
    // Skip a poll while the last one is unanswered.
    if (this.#busy) return;
    this.#busy = true;
    try {
      const text = await this.session.call(async () => (await this.session.api.send("metrics")).text());
      this.#history.add(parseMetrics(text), performance.now());
      fill(this.#state, "The last two minutes, a point a second while you look.");
      for (const { show } of this.#plots) show(this.#history.points);
    } catch (error) {
      fill(this.#state, error instanceof Error ? error.message : String(error));
    } finally {
      this.#busy = false;
    }
  }

  #showModels() {
    fill(
      this.#models,
      this.session.models.map((model) => {
        const context = model.context ? `, ${model.context} tokens of context` : "";
        return h(
          "li",
          { class: "row" },
          h("span", { class: "fill" }, modelLabel(model), context),
          this.#switch(model),
        );
      }),
    );
  }

  /**
   * Returns the button that loads or unloads a model; null for a server with one model.
   * @param {import("./models.js").Model} model
   */
  #switch({ id, state }) {
    if (this.session.models.length < 2 || state === "loading" || state === "draining") return null;
    const [verb, path] = state === "ready" ? ["Unload", "models/unload"] : ["Load", "models/load"];
    const act = async () => {
      const asked = this.session.call(() => this.session.api.post(path, { model: id }));
      // Loading takes a while, so update the list now to show that state.
      await Promise.race([asked.catch(() => {}), new Promise((resolve) => setTimeout(resolve, 100))]);
      this.session.loadModels().catch(() => {});
      try {
        await asked;
      } catch (error) {
        toast(error instanceof Error ? error.message : String(error));
      }
      this.session.loadModels().catch(() => {});
    };
    return h("button", { type: "button", "aria-label": `${verb} ${id}`, onclick: act }, verb);
  }
}

/** @param {typeof PLOTS[number]} spec */
function plot({ title, unit, least, fixed, lines }) {
  const paths = lines.map((_, i) =>
    svg("path", { class: `line line-${i}`, "vector-effect": "non-scaling-stroke" })
  );
  const top = h("span", { class: "top" });
  const values = lines.map(() => h("strong"));
  const drawing = svg(
    "svg",
    {
      viewBox: `0 -4 ${FRAME.width} ${FRAME.height + 8}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": title,
    },
    svg("path", {
      class: "grid",
      d: `M0 0H${FRAME.width}M0 ${FRAME.height / 2}H${FRAME.width}M0 ${FRAME.height}H${FRAME.width}`,
    }),
    paths,
  );
  const element = h(
    "figure",
    { class: "plot" },
    h(
      "figcaption",
      {},
      h("h2", {}, title),
      lines.map(({ label }, i) => h("span", { class: `key key-${i}` }, values[i], ` ${label}`)),
    ),
    h("div", { class: "frame" }, drawing, top),
  );
  return {
    element,
    /** @param {readonly Point[]} points */
    show(points) {
      const most = fixed
        ? least
        : axisTop(Math.max(...points.flatMap((point) => lines.map(({ name }) => point[name]))), least);
      top.textContent = `${most} ${unit}`;
      lines.forEach(({ name }, i) => {
        paths[i].setAttribute("d", linePath(points.map((point) => point[name]), { ...FRAME, top: most }));
        values[i].textContent = `${Math.round(points[points.length - 1][name])} ${unit}`.trim();
      });
      const said = lines.map(({ label }, i) => `${values[i].textContent} ${label}`).join(", ");
      drawing.setAttribute("aria-label", `${title}: ${said}`);
    },
  };
}
