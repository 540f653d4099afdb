import {
  type ChatPlan,
  type Engine,
  EngineError,
  finish,
  type Paced,
  type PromptImage,
  type Sender,
} from "../../engine/mod.ts";
import type { AppContext } from "../core/context.ts";
import type { Incoming } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { paced } from "../core/paced.ts";
import type { FetchImage } from "./fetch_image.ts";
import { IMAGE, isFileUrl, isRemoteUrl, NOT_FETCHED, urlFault, urlOf } from "./image_urls.ts";
import type { ChatMessageBody, Part } from "./messages.ts";

/** Maximum images of one request. */
const MOST_IMAGES = 8;

/** The sender of a request with images, and the signal that ends their decoding. */
export interface ImageSender extends Sender {
  readonly signal?: AbortSignal;
  /** Returns the bytes of an image's file, or why it cannot be read. Without it, files are refused. */
  readonly readImageFile?: ReadImage;
  /** Returns the bytes of an image that the sender uploaded, or the reason for an error. Without it, ids are refused. */
  readonly readUpload?: ReadImage;
  /** Fetches images at https URLs. Without it, such URLs are refused. */
  readonly fetchImage?: FetchImage;
}

type ReadImage = (name: string) => Promise<Uint8Array<ArrayBuffer> | string>;

/** Returns the sender of an HTTP request. The request can only name files of its owner as images. */
export function imageSender(
  { caller: { cacheSalt, weight }, owner, raw }: Pick<
    Incoming<never, never, never>,
    "caller" | "owner" | "raw"
  >,
  { batches, fetchImage }: Pick<AppContext, "batches" | "fetchImage">,
): ImageSender {
  return {
    cacheSalt,
    weight,
    signal: raw.signal,
    fetchImage,
    readUpload: batches && ((id) => batches.readImage(owner, id)),
  };
}

/** A conversation whose parts of type image_url belong to the decoded images, in order. */
export interface SeenConversation {
  readonly messages: readonly ChatMessageBody[];
  readonly images: readonly PromptImage[];
}

/** The plan of a chat with images. */
export type SeenPlan = ChatPlan & { readonly images: readonly PromptImage[] };

/**
 * Decodes a conversation's images. Throws ApiError 400 for a user's image that cannot be read, and for a model that
 * takes no images. In results of tools, a text replaces an image that cannot be read, because a refusal would end an
 * agent's session. If there are too many images, the first ones of tools are left out.
 */
export async function readImages(
  engine: Engine,
  given: readonly ChatMessageBody[],
  sender: ImageSender,
): Promise<SeenConversation> {
  const messages = given.map(withParams);
  const isFound = (wanted: boolean) => ({ role, content }: ChatMessageBody) =>
    Array.isArray(content) && (role === "user") === wanted ? content.filter(isImage) : [];
  const ofUser = messages.flatMap(isFound(true));
  const ofTools = messages.flatMap(isFound(false));
  if (ofUser.length + ofTools.length === 0) return { messages, images: [] };
  checkUser(engine, ofUser);
  const left = new Set(ofTools.slice(0, Math.max(0, ofUser.length + ofTools.length - MOST_IMAGES)));
  const images: PromptImage[] = [];
  const seen: ChatMessageBody[] = [];
  for (const message of messages) {
    const { role, content } = message;
    if (!Array.isArray(content) || !content.some(isImage)) {
      seen.push(message);
      continue;
    }
    const parts: Part[] = [];
    for (const part of content) {
      if (!isImage(part)) {
        parts.push(part);
        continue;
      }
      try {
        if (left.has(part)) throw tooMany(part);
        images.push(await readOne(engine, part, sender));
        parts.push(part);
      } catch (error) {
        if (role === "user" || !(error instanceof ApiError) || error.status !== 400) throw error;
        parts.push({ type: "text", text: `[image left out: ${error.message.replace(PREFIX, "")}]` });
      }
    }
    seen.push({ ...message, content: parts });
  }
  return { messages: seen, images };
}

/** Gives the message's images the names of their fields, unless the endpoint has named them. */
function withParams(message: ChatMessageBody, i: number): ChatMessageBody {
  const { content } = message;
  if (!Array.isArray(content) || !content.some(isImage)) return message;
  const named = content.map((part, j) =>
    isImage(part) ? { param: `messages[${i}].content[${j}].${IMAGE}`, ...part } : part
  );
  return { ...message, content: named };
}

function isImage({ type }: Part): boolean {
  return type === IMAGE;
}

function checkUser(engine: Engine, images: readonly Part[]): void {
  if (images.length === 0) return;
  if (!engine.model.images) throw textOnly(images[0]);
  if (images.length <= MOST_IMAGES) return;
  throw tooMany(images[MOST_IMAGES]);
}

function textOnly(part: Part): ApiError {
  return refused("this model reads text only", part, "unsupported_content");
}

function tooMany(part: Part): ApiError {
  return refused(`a request may have at most ${MOST_IMAGES} images`, part, "too_many_images");
}

/** The start of a refusal's message; the reason follows. */
const PREFIX = /^(?:Invalid "[^"]*"|Cannot read the image): /;

function refused(reason: string, { param }: Part, code = "invalid_image"): ApiError {
  return new ApiError(400, code, `Invalid "${param}": ${reason}`, { param });
}

/** Characters of base64 that are decoded at a time: a multiple of four. */
const CHARACTERS = 2 ** 18;

/** Returns the bytes of the text's base64, which begins at `start`. Throws SyntaxError. */
function* decoded(text: string, start: number): Paced<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(Math.ceil((text.length - start) / 4) * 3);
  let written = 0;
  for (let at = start; at < text.length; at += CHARACTERS) {
    const part = Uint8Array.fromBase64(text.slice(at, at + CHARACTERS));
    bytes.set(part, written);
    written += part.length;
    yield;
  }
  return bytes.slice(0, written);
}

async function readOne(engine: Engine, part: Part, sender: ImageSender): Promise<PromptImage> {
  if (!engine.model.images) throw textOnly(part);
  try {
    return await engine.readImage(await bytesOf(part, sender), sender.signal, sender);
  } catch (error) {
    if (error instanceof SyntaxError) throw refused("it is not base64", part);
    if (!(error instanceof EngineError) || error.code !== "invalid_request") throw error;
    throw new ApiError(400, "invalid_image", error.message, { param: part.param });
  }
}

async function bytesOf(part: Part, sender: ImageSender): Promise<Uint8Array<ArrayBuffer>> {
  const { readImageFile, readUpload, fetchImage, signal } = sender;
  const url = urlOf(part);
  if (part.file_id !== undefined) {
    const found = await readUpload?.(part.file_id) ?? "there are no uploaded files here";
    if (typeof found === "string") throw refused(found, part);
    return found;
  }
  if (isFileUrl(url)) {
    const found = await readImageFile?.(url) ?? "only batches with a folder of images read files";
    if (typeof found !== "string") return found;
    throw refused(found, part, readImageFile ? undefined : "unsupported_image_url");
  }
  if (isRemoteUrl(url)) {
    const found = await fetchImage?.(url, signal) ?? NOT_FETCHED;
    if (typeof found !== "string") return found;
    throw refused(found, part, fetchImage ? undefined : "unsupported_image_url");
  }
  const fault = urlFault(url);
  if (fault) throw refused(fault.reason, part, fault.code);
  return await paced(() => finish(decoded(url, url.indexOf(",") + 1)));
}
