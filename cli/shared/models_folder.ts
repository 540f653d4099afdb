import { fromFileUrl, join } from "@std/path";
import { modelsInFolder } from "../../lib/model_file.ts";
import { FROM_SOURCE, shipped } from "../../package.ts";

/** Where models are pulled to if nobody says otherwise: beside a checkout, and where one stands with an installed program. */
const DEFAULT_FOLDER = FROM_SOURCE ? fromFileUrl(shipped(".compy/models")) : ".compy/models";

/** The folder of models: as given, or COMPY_MODELS, or `.compy/models`. */
export function modelsFolder(given?: string): string {
  return given ?? fromEnvironment() ?? DEFAULT_FOLDER;
}

function fromEnvironment(): string | undefined {
  try {
    return Deno.env.get("COMPY_MODELS") || undefined;
  } catch {
    return undefined; // a task that may not know it
  }
}

/** The file of a model in the folder of models; undefined where there is a file of that name here, or no such model. */
export function pulledModel(name: string): string | undefined {
  try {
    Deno.statSync(name);
    return undefined;
  } catch {
    return modelsInFolder(modelsFolder()).find(({ id }) => id === name)?.path;
  }
}

/** The folder as it is shown: without what the caller's folder is. */
export function shownFolder(folder: string): string {
  const here = join(Deno.cwd(), "/");
  return folder.startsWith(here) ? folder.slice(here.length) : folder;
}
