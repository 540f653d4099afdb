import { type ModelList, parseModelList } from "../../hub/mod.ts";
import { explained } from "../../lib/system_errors.ts";

/** Returns the user's own model list. Throws PullError. */
export async function modelList(given: string | undefined): Promise<ModelList> {
  const path = given ?? (Deno.env.get("COMPY_MODEL_LIST") || undefined);
  if (path === undefined) return {};
  let text: string;
  try {
    text = await Deno.readTextFile(path);
  } catch (error) {
    throw explained(`Cannot read the list of models in "${path}"`, error);
  }
  return parseModelList(text, path);
}
