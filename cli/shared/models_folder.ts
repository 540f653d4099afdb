import { fromFileUrl, join } from "@std/path";
import { modelsInFolder } from "../../lib/model_file.ts";
import { FROM_SOURCE, shipped } from "../../package.ts";

/** The default models folder: beside a checkout, or in the current folder of an installed program. */
const DEFAULT_FOLDER = FROM_SOURCE ? fromFileUrl(shipped(".compy/models")) : ".compy/models";

/** Returns the models folder: the given one, COMPY_MODELS, or `.compy/models`. */
export function modelsFolder(given?: string): string {
  return given ?? fromEnvironment() ?? DEFAULT_FOLDER;
}

function fromEnvironment(): string | undefined {
  try {
    return Deno.env.get("COMPY_MODELS") || undefined;
  } catch {
    return undefined; // this task may not read the variable
  }
}

/**
 * Returns the file of a model in the models folder; undefined if a file of that name exists here, or the
 * model does not.
 */
export function pulledModel(name: string): string | undefined {
  try {
    Deno.statSync(name);
    return undefined;
  } catch {
    return modelsInFolder(modelsFolder()).find(({ id }) => id === name)?.path;
  }
}

/** Returns the folder for display, relative to the caller's folder. */
export function shownFolder(folder: string): string {
  const here = join(Deno.cwd(), "/");
  return folder.startsWith(here) ? folder.slice(here.length) : folder;
}
