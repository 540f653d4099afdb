// @ts-check
/// <reference lib="dom" />
import { bytes } from "./format.js";

/*
 * Images of messages. A message holds only a thumbnail of each image. The image's file is stored once, under the
 * image's id, so that a conversation with images is saved as quickly as one without.
 */

/**
 * An image of a message. `thumb` is its thumbnail as a data URL.
 * @typedef {{ id: string, name: string, thumb: string }} Image
 */

/** The server's limit of images in a request. */
export const MOST_IMAGES = 8;
/** Maximum bytes of a file that the page opens. */
const MOST_BYTES = 30_000_000;
/**
 * An image with more bytes or pixels is scaled down and sent as JPEG, because the server refuses requests above 8 MiB.
 * Models see about a million pixels.
 */
const SENT_BYTES = 700_000;
const SENT_PIXELS = 1_500_000;
const READ_PIXELS = 2 ** 25;

/** Maximum pixels of a thumbnail, and maximum characters of its data URL. */
const THUMB_PIXELS = 50_000;
const MOST_THUMB = 100_000;

/** The media types of images that the server reads, for a file dialog. */
export const KINDS = "image/png,image/jpeg,image/webp,image/gif";

/**
 * Returns the media type of an image file by its first 12 bytes, like the server; undefined for other files.
 * @param {Uint8Array} head
 */
export function kindOf(head) {
  const text = String.fromCharCode(...head.subarray(0, 12));
  if (text.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (/^RIFF[^]{4}WEBP/.test(text)) return "image/webp";
  if (/^GIF8[79]a/.test(text)) return "image/gif";
  return undefined;
}

/** Returns a new id that begins with the time, from which `addedAt` tells an image's age. */
export function newImageId(now = Date.now()) {
  const random = crypto.getRandomValues(new Uint8Array(4));
  return now.toString(16).padStart(12, "0") +
    Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns the time in milliseconds since 1970 when an image was added.
 * @param {string} id
 */
export function addedAt(id) {
  return parseInt(id.slice(0, 12), 16);
}

/** @param {unknown} id */
export function isImageId(id) {
  return typeof id === "string" && /^[0-9a-f]{20}$/.test(id);
}

/**
 * Returns whether a text is a data URL of a thumbnail. The page shows no other address as a thumbnail.
 * @param {string} text
 */
export function isThumb(text) {
  return text.length <= MOST_THUMB && /^data:image\/jpeg;base64,[\w+/]+={0,2}$/.test(text);
}

/**
 * Checks a file, draws its thumbnail and scales a large image down. Throws an Error that says why the file is refused.
 * @param {File} file
 * @returns {Promise<{ image: Image, blob: Blob }>}
 */
export async function prepareImage(file) {
  const name = file.name || "image";
  if (file.size > MOST_BYTES) {
    throw new Error(`${name} has ${bytes(file.size)}: an image may have at most ${bytes(MOST_BYTES)}.`);
  }
  const type = kindOf(new Uint8Array(await file.slice(0, 12).arrayBuffer()));
  if (type === undefined) throw new Error(`${name} is not a PNG, JPEG, WebP or GIF image.`);
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${name} is damaged, or this browser cannot read it.`);
  });
  try {
    const thumb = drawn(bitmap, THUMB_PIXELS).toDataURL("image/jpeg", 0.8);
    const large = file.size > SENT_BYTES || bitmap.width * bitmap.height > READ_PIXELS;
    const blob = large ? await jpegOf(drawn(bitmap, SENT_PIXELS)) : new Blob([file], { type });
    return { image: { id: newImageId(), name: name.slice(0, 200), thumb }, blob };
  } finally {
    bitmap.close();
  }
}

/**
 * Returns a canvas with the image, scaled to at most `most` pixels, on a white ground like the server's.
 * @param {ImageBitmap} bitmap
 * @param {number} most
 */
function drawn(bitmap, most) {
  const scale = Math.min(1, Math.sqrt(most / (bitmap.width * bitmap.height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.floor(scale * bitmap.width));
  canvas.height = Math.max(1, Math.floor(scale * bitmap.height));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {Promise<Blob>}
 */
function jpegOf(canvas) {
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => blob ? resolve(blob) : reject(new Error("This browser cannot scale the image.")),
      "image/jpeg",
      0.85,
    )
  );
}

/**
 * Returns a file as a data URL.
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
export function dataUrlOf(blob) {
  const reader = new FileReader();
  return new Promise((resolve, reject) => {
    reader.onload = () => resolve(/** @type {string} */ (reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

/**
 * Returns the file that an image's data URL holds; undefined for any other value.
 * @param {unknown} url
 */
export function blobOf(url) {
  const [, type, base64] = typeof url === "string" && url.length < 2 * MOST_BYTES
    ? /^data:(image\/(?:png|jpeg|webp|gif));base64,([\w+/]+={0,2})$/.exec(url) ?? []
    : [];
  if (base64 === undefined) return undefined;
  try {
    return new Blob([Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))], { type });
  } catch {
    return undefined;
  }
}
