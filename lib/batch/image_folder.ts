import { fromFileUrl, resolve, SEPARATOR } from "@std/path";
import { MOST_IMAGE_BYTES } from "../../engine/mod.ts";
import type { LineEngine } from "../../jobs/setup.ts";

/** A folder of images that batch lines may name. */
export interface ImageFolder {
  /** The folder's path without symbolic links. */
  readonly path: string;
  /** Returns the file's bytes, or the reason why the file cannot be read. */
  read(url: string): Promise<Uint8Array<ArrayBuffer> | string>;
}

/** Opens a folder of images. Throws Error if it is not a folder. */
export async function openImageFolder(folder: string): Promise<ImageFolder> {
  const path = await Deno.realPath(folder);
  if (!(await Deno.stat(path)).isDirectory) throw new Error(`"${folder}" is not a folder`);
  return { path, read: (url) => read(path, url) };
}

/** Returns an engine whose lines may name images in the folder. The folder's path is part of the job's identity. */
export function withImages(engine: LineEngine, folder: ImageFolder | undefined): LineEngine {
  if (!folder) return engine;
  return {
    ...engine,
    settings: { ...engine.settings, "images folder": folder.path },
    execute: (request) => engine.execute({ ...request, readImageFile: folder.read }),
  };
}

/**
 * Returns the bytes of the file at a URL, or the reason why it cannot be read. The URL is `file:///` with an absolute
 * path in URL form, or `file:` with a plain path. Neither `..` nor symbolic links lead out of the folder.
 */
async function read(folder: string, url: string): Promise<Uint8Array<ArrayBuffer> | string> {
  let file: Deno.FsFile | undefined;
  try {
    const given = /^file:\/\//i.test(url) ? localPath(url) : url.slice("file:".length);
    const path = await Deno.realPath(resolve(folder, given));
    const base = folder.endsWith(SEPARATOR) ? folder : folder + SEPARATOR;
    if (!path.startsWith(base)) return "the file is not in the image folder";
    const { isFile, size } = await Deno.stat(path);
    if (!isFile) return "it is not a file";
    if (size > MOST_IMAGE_BYTES) return `it must have at most ${MOST_IMAGE_BYTES} bytes (got ${size})`;
    file = await Deno.open(path);
    const bytes = new Uint8Array(size);
    for (let at = 0; at < size;) {
      const count = await file.read(bytes.subarray(at));
      if (count === null) return "the file ended while it was read";
      at += count;
    }
    return bytes;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "the image folder does not have this file";
    return "the file cannot be read";
  } finally {
    file?.close();
  }
}

function localPath(url: string): string {
  const parsed = new URL(url);
  if (parsed.host !== "" && parsed.host !== "localhost") throw new Error("not of this machine");
  return fromFileUrl(parsed);
}
