import { fromFileUrl } from "@std/path";
import { shipped } from "../package.ts";
import { CompyError, modelFileError } from "./errors.ts";

export { modelName, modelsInFolder } from "../engine/models/folder.ts";

/** The model that comes with compy. */
const DEMO_MODEL = shipped("models/demo.gguf");

/**
 * The path of a model's file, by default that of the demo model. Throws CompyError model_not_found where it cannot be read, or is no
 * file; `advice` says what to do where there is none.
 */
export function modelPath(given: string | URL | undefined, advice = ""): string {
  const file = given ?? DEMO_MODEL;
  const path = typeof file === "string" ? file : fromFileUrl(file);
  // Not imported: a browser, which has no such module, reads this file too.
  const fs = globalThis.process?.getBuiltinModule("node:fs");
  if (fs === undefined) return path; // who reads it will say what is wrong with it
  const what = `Cannot load a model from "${path}"`;
  let info: ReturnType<typeof fs.statSync>;
  try {
    info = fs.statSync(path);
    if (info.isFile()) fs.closeSync(fs.openSync(path, "r"));
  } catch (error) {
    throw modelFileError(what, error, advice);
  }
  if (info.isFile()) return path;
  const kind = info.isDirectory() ? "a folder" : "a device or the like";
  throw new CompyError("model_not_found", `${what}: it must be a GGUF file (got ${kind})`);
}
