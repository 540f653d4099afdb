import { join } from "@std/path";
import { Fields, inWords, isObject, readJson, readText } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";

const MAX_BYTES = 4 * 1024 * 1024;
const KEY = "tokenizer.chat_template";

/**
 * Returns the keys of the chat templates, from chat_template.jinja, else chat_template.json, else
 * tokenizer_config.json. tokenizer_config.json may hold one text or several named ones.
 */
export async function chatTemplateEntries(folder: string, config: Fields): Promise<Entry[]> {
  const own = await readText(join(folder, "chat_template.jinja"), MAX_BYTES);
  if (own !== undefined) return [entry(KEY, "STRING", own)];
  const path = join(folder, "chat_template.json");
  const json = await readJson(path, MAX_BYTES);
  const fields: Fields = json === undefined ? config : Fields.of(path, json);
  const template = fields.get("chat_template");
  if (template === undefined) return [];
  if (typeof template === "string") return [entry(KEY, "STRING", template)];
  if (!Array.isArray(template)) fields.refuse("chat_template", inWords(template), "a text or an array");
  return template.map((variant: unknown) => {
    const { name, template } = isObject(variant) ? variant : {};
    if (typeof name !== "string" || !/^\w{1,64}$/.test(name) || typeof template !== "string") {
      fields.refuse("chat_template", `a variant ${inWords(name)}`, "objects of a name and a template");
    }
    return entry(name === "default" ? KEY : `${KEY}.${name}`, "STRING", template);
  });
}
