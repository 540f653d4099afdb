import { checkTemplate, type GivenTemplate } from "../../lib/model.ts";
import { explained } from "../../lib/system_errors.ts";
import { path } from "./settings.ts";

export const CHAT_TEMPLATE = path("FILE", {
  help: "a Jinja chat template, in place of the one in the model's file",
});

/** Maximum bytes of a template file; a template has at most 2^20 characters. */
const MAX_BYTES = 4 * 2 ** 20;

/** Returns the chat template in a file. Throws an error that names the file, and the line if the template has an error. */
export function readChatTemplate(file: string): GivenTemplate {
  const what = `Cannot read the chat template "${file}"`;
  let bytes: Uint8Array;
  try {
    const { size } = Deno.statSync(file);
    if (size > MAX_BYTES) throw new Error(`${what}: it must have at most ${MAX_BYTES} bytes (got ${size})`);
    bytes = Deno.readFileSync(file);
  } catch (error) {
    throw explained(what, error);
  }
  let source: string;
  try {
    source = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${what}: it must be UTF-8, and some of its bytes are not`);
  }
  const template = { source, file };
  checkTemplate(template);
  return template;
}
