// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { announce, fill, h, iconButton } from "./dom.js";
import { KINDS, MOST_IMAGES, prepareImage } from "./images.js";

/** @typedef {import("./images.js").Image} Image */

/**
 * Returns a list of thumbnails. If `onRemove` is given, each has a button that removes its image.
 * @param {readonly Image[]} images
 * @param {(image: Image) => void} [onRemove]
 */
export function imageList(images, onRemove) {
  return h(
    "ul",
    { class: "images", "aria-label": "Images" },
    images.map((image) =>
      h(
        "li",
        {},
        h("img", { src: image.thumb, alt: image.name, title: image.name }),
        onRemove && iconButton("close", `Remove ${image.name}`, () => onRemove(image)),
      )
    ),
  );
}

/**
 * Returns a list of images that the user can remove one by one. After a removal, the focus moves to `next`.
 * @param {readonly Image[]} given
 * @param {HTMLElement} next
 */
export function removableImages(given, next) {
  const element = h("div", {});
  const left = { images: given, element };
  const show = () =>
    fill(
      element,
      left.images.length > 0 && imageList(left.images, (image) => {
        left.images = left.images.filter((other) => other !== image);
        show();
        next.focus();
      }),
    );
  show();
  return left;
}

/** The images of the message that the user writes. Files come from a dialog, the clipboard or a drop. */
export class Attachments {
  /** @type {Image[]} */
  #images = [];
  #input = h("input", {
    type: "file",
    accept: KINDS,
    multiple: true,
    class: "unseen",
    tabindex: -1,
    "aria-label": "Images to attach",
  });
  #problem = h("p", { class: "problem", role: "alert", hidden: true });
  #shown = h("div", {});
  button = iconButton("image", "Attach images", () => this.#input.click(), { class: "quiet round" });
  /**
   * A promise that resolves when all files are added; undefined while no file is being added. @type {Promise<void> |
   * undefined}
   */
  adding = undefined;
  element = h("div", { class: "attachments" }, this.#input, this.#problem, this.#shown);

  /**
   * @param {import("./store.js").ImageStore} store
   * @param {() => number} sent returns the number of images in the conversation
   * @param {() => string} refusal returns the reason why the model reads no images; "" if it reads them
   */
  constructor(store, sent, refusal) {
    this.store = store;
    this.sent = sent;
    this.refusal = refusal;
    this.#input.addEventListener("change", () => {
      const files = [...this.#input.files ?? []];
      this.#input.value = ""; // allows choosing the same file again
      this.add(files);
    });
  }

  get count() {
    return this.#images.length;
  }

  /** Adds the files of a paste or drop if one of them is an image. @param {ClipboardEvent | DragEvent} event */
  take(event) {
    const data = event instanceof DragEvent ? event.dataTransfer : event.clipboardData;
    const files = [...data?.files ?? []];
    if (!files.some(({ type }) => type.startsWith("image/"))) return;
    event.preventDefault();
    this.add(files);
  }

  /**
   * Adds the images among the files, in order, and shows why other files are refused. @param {readonly File[]} files
   */
  add(files) {
    const adding = Promise.resolve(this.adding).then(() => this.#add(files));
    this.adding = adding;
    adding.then(() => {
      if (this.adding === adding) this.adding = undefined;
    });
  }

  /** @param {readonly File[]} files */
  async #add(files) {
    const problems = new Set();
    for (const file of files) {
      try {
        if (this.refusal() !== "") throw new Error(this.refusal());
        if (this.sent() + this.count >= MOST_IMAGES) {
          throw new Error(`A conversation may have at most ${MOST_IMAGES} images.`);
        }
        const { image, blob } = await prepareImage(file);
        await this.store.put(image.id, blob).catch(() => {
          problems.add(`The browser has no space to keep ${image.name}: it is lost when this page closes.`);
        });
        this.#images.push(image);
        announce(`${image.name} is attached`);
      } catch (error) {
        problems.add(error instanceof Error ? error.message : String(error));
      }
    }
    this.#show([...problems].join(" "));
  }

  /** Returns the images and forgets them. */
  release() {
    const images = this.#images;
    this.#images = [];
    this.#show();
    return images;
  }

  #show(problem = "") {
    this.#problem.textContent = problem;
    this.#problem.hidden = problem === "";
    const remove = (/** @type {Image} */ image) => {
      this.#images = this.#images.filter((other) => other !== image);
      this.#show();
      this.button.focus();
    };
    fill(this.#shown, this.count > 0 && imageList(this.#images, remove));
  }
}
