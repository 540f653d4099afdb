import { fromFileUrl } from "@std/path";
import { shipped } from "../package.ts";
import { CompyError, modelFileError } from "./errors.ts";

export { modelName, modelsInFolder } from "../engine/models/folder.ts";

/** Path of the demo model that comes with compy. */
const DEMO_MODEL = shipped("models/demo.gguf");

/**
 * Returns the path of a model's file, by default the demo model's. Throws CompyError model_not_found if it cannot be
 * read or is not a file; the message then ends with `advice`.
 */
export function modelPath(given: string | URL | undefined, advice = ""): string {
  const file = given ?? DEMO_MODEL;
  const path = typeof file === "string" ? file : fromFileUrl(file);
  // node:fs is not imported, because browsers load this file too and have no such module.
  const fs = globalThis.process?.getBuiltinModule("node:fs");
  if (fs === undefined) return path; // reading the file reports any problem
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
