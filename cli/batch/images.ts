import { type ImageFolder, openImageFolder } from "../../lib/batch/image_folder.ts";
import { fetcherOf } from "../shared/image_hosts.ts";
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

/**
 * Returns a world in which lines may name images at https URLs on these hosts. Throws an Error if this process may not
 * connect to a host.
 */
export async function withImageHosts(hosts: string | undefined, world: BatchWorld): Promise<BatchWorld> {
  const fetchImage = await fetcherOf(
    hosts,
    (named) => `deno run -P=batch --allow-net=${named} main.ts batch run …`,
  );
  if (!fetchImage) return world;
  return { ...world, execute: (engine, request) => world.execute(engine, { ...request, fetchImage }) };
}
