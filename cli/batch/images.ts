import { type ImageFolder, openImageFolder } from "../../lib/batch/image_folder.ts";
import { UsageError } from "../shared/flags.ts";
import { path } from "../shared/settings.ts";
import type { BatchWorld } from "./world.ts";

export const IMAGE_FOLDER = path("FOLDER", {
  help: "lines may name image files in this folder as file:PATH, with PATH relative to the folder",
});

/**
 * Returns a world in which lines may name image files in the folder. Throws UsageError for a path that is not a folder.
 */
export async function withImageFolder(path: string | undefined, world: BatchWorld): Promise<BatchWorld> {
  if (path === undefined) return world;
  let folder: ImageFolder;
  try {
    folder = await openImageFolder(path);
  } catch (error) {
    throw new UsageError(`Cannot use --images "${path}": ${(error as Error).message}`);
  }
  return {
    ...world,
    images: folder,
    execute: (engine, request) => world.execute(engine, { ...request, readImageFile: folder.read }),
  };
}
