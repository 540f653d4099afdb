import type { z } from "@hono/zod-openapi";
import { MOST_IMAGE_BYTES } from "../../engine/mod.ts";
import { refuse } from "../core/fields.ts";

/** Type of a part that is an image, and the name of its field. */
export const IMAGE = "image_url";

/** Kinds of image URLs. Only batches with an image folder read files. https URLs need allowed hosts. */
const DATA_URL = /^data:[^,]{0,256};base64,/i;
const FILE_URL = /^file:/i;
const HTTPS_URL = /^https:/i;
/** Maximum characters of a file URL or an https URL. */
const MOST_ADDRESS = 4096;
/** Maximum characters of a data URL: the base64 of the largest image. */
const MOST_URL = Math.ceil(MOST_IMAGE_BYTES / 3) * 4 + 512;

/** Why an image's URL cannot be read. */
interface Fault {
  readonly code: "unsupported_image_url" | "invalid_image";
  readonly reason: string;
}

/** Returns the URL of a part that is an image; "" where there is none. */
export function urlOf({ image_url }: { image_url?: string | { url: string } | null }): string {
  return (typeof image_url === "string" ? image_url : image_url?.url) ?? "";
}

export function isFileUrl(url: string): boolean {
  return FILE_URL.test(url);
}

export function isRemoteUrl(url: string): boolean {
  return HTTPS_URL.test(url);
}

export const NOT_FETCHED =
  'it must be a data URL, such as "data:image/png;base64,…"; the server fetches no images';

/** Returns the fault of an image's URL; undefined for a data URL of allowed length, a file URL or an https URL. */
export function urlFault(url: string): Fault | undefined {
  if (isFileUrl(url) || isRemoteUrl(url)) {
    if (url.length <= MOST_ADDRESS) return undefined;
    return { code: "invalid_image", reason: `it must have at most ${MOST_ADDRESS} characters` };
  }
  if (!DATA_URL.test(url)) return { code: "unsupported_image_url", reason: NOT_FETCHED };
  if (url.length <= MOST_URL) return undefined;
  return { code: "invalid_image", reason: `it must have at most ${MOST_IMAGE_BYTES} bytes` };
}

/** Refuses an image of the user without a URL that can be read. `path` leads to the URL's field. */
export function checkImageUrl(
  ctx: z.RefinementCtx,
  path: (string | number)[],
  url: string | null | undefined,
): void {
  const field = path.filter((key) => typeof key === "string").at(-1);
  if (!url) return refuse(ctx, path, "missing_required_parameter", `An image needs "${field}"`);
  const fault = urlFault(url);
  if (fault) refuse(ctx, path, fault.code, `Invalid "${field}": ${fault.reason}`);
}

/** Returns base64 as a data URL. The bytes decide the image's type, not the URL. */
export function dataUrl(base64: string, type = "image/png"): string {
  return `data:${type};base64,${base64}`;
}
