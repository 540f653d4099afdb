import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { dirname, fromFileUrl, join } from "@std/path";
import { COMMANDS } from "../cli/commands.ts";
import { MODEL_TYPES } from "../convert/models.ts";
import { QUANTIZE_TO } from "../convert/quantize/quantize_to.ts";
import { TOWER_TYPES } from "../convert/vision/tower.ts";
import { ARCHITECTURE_NAMES, readPlan } from "../engine/architectures/registry.ts";
import { CALL_FORMATS } from "../engine/chat/formats/registry.ts";
import { GgufError } from "../engine/gguf/errors.ts";
import { FORMATS } from "../engine/gguf/formats.ts";
import ggml from "../engine/gguf/ggml_types.json" with { type: "json" };
import { parseGguf } from "../engine/gguf/reader.ts";
import { GgufBuilder } from "../engine/gguf/testing.ts";
import { KV_TYPES } from "../engine/plan/choices.ts";
import { TOKENIZER_KINDS } from "../engine/tokenizer/kinds.ts";
import { KINDS } from "../engine/vision/kinds.ts";
import { DENO_VERSION, OLDEST_DENO } from "../package.ts";
import { BATCH_ENDPOINTS, ENDPOINTS } from "../routes/endpoints.ts";
import { GENERATION_URLS } from "../routes/generations.ts";
import llamaCpp from "./llama_cpp_architectures.json" with { type: "json" };

/* Claims of documents about families, formats and endpoints, compared with the registries. */

const ROOT = join(dirname(fromFileUrl(import.meta.url)), "..");
const read = (path: string) => Deno.readTextFile(join(ROOT, path));

/** Returns the cells of table rows whose first cell matches. */
function cellsOf(text: string, first: RegExp): string[][] {
  const rows = text.match(/^\| .* \|$/gm)!.map((row) => row.slice(2, -2).split(" | "));
  return rows.filter(([cell]) => first.test(cell));
}

/** Compares a part of a document with `made`. If UPDATE_SNAPSHOTS is set, writes `made` into the document. */
async function assertMade(document: string, part: RegExp, made: string): Promise<void> {
  const text = await read(document);
  assert(part.test(text), `${document} has no ${part}`);
  const right = text.replace(part, made);
  if (Deno.env.get("UPDATE_SNAPSHOTS")) await Deno.writeTextFile(join(ROOT, document), right);
  else assertEquals(text, right);
}

/** Returns the text without parts in parentheses, also nested ones. */
function withoutParentheses(text: string): string {
  const shorter = text.replace(/\([^()]*\)/g, "");
  return shorter === text ? text : withoutParentheses(shorter);
}

/** Words between the families' names. */
const JOINING = new Set(
  "and with With for For only alone sparse attention convolutions Mamba2 Kimi Delta Attention embedding ranking"
    .split(" "),
);

/** Returns the names in a list of architectures: its words without the joining words. */
function architecturesIn(list: string): string[] {
  return list.match(/[A-Za-z][\w.-]*\w/g)!.filter((word) => !JOINING.has(word));
}

Deno.test("claims: MODELS.md lists the architectures of the registry, each once, and no other", async () => {
  const rows = cellsOf(
    await read("docs/MODELS.md"),
    /^(decoders|hybrids|mixtures of experts|encoders) on the CPU/,
  );
  const named = rows.flatMap(([, names]) => architecturesIn(withoutParentheses(names)));
  // gemma4 is dense or has experts.
  assertEquals(named.sort(), [...ARCHITECTURE_NAMES, "gemma4"].sort());
});

Deno.test("claims: MODELS.md and WEBGPU.md name the same architectures for the GPU", async () => {
  const [[, models]] = cellsOf(await read("docs/MODELS.md"), /^decoders on the CPU and the GPU$/);
  const [[webGpu]] = cellsOf(await read("docs/WEBGPU.md"), /^llama, /);
  const named = architecturesIn(webGpu).filter((word) => ARCHITECTURE_NAMES.includes(word));
  assertEquals(architecturesIn(withoutParentheses(models)).sort(), named.sort());
});

Deno.test("claims: MODELS.md's table of memory names only architectures of the registry", async () => {
  const text = await read("docs/MODELS.md");
  const table = text.slice(text.indexOf("| model (parameters")).split("\n\n")[0];
  const names = cellsOf(table, /^(?!---|model \()/).flatMap(([, architectures]) => architectures.split(", "));
  assert(names.length > 40);
  assertEquals(names.filter((name) => !ARCHITECTURE_NAMES.includes(name)), []);
});

Deno.test("claims: MODELS.md lists each architecture of llama.cpp that compy lacks, and no other", async () => {
  const text = await read("docs/MODELS.md");
  const table = text.slice(text.indexOf("| why compy lacks them |")).split("\n\n")[0];
  const listed = cellsOf(table, /^(?!---|why )/).flatMap(([, names]) => names.split(", "));
  assertEquals(listed.sort(), llamaCpp.names.filter((name) => !ARCHITECTURE_NAMES.includes(name)).sort());
});

Deno.test("claims: the README and the changelog state the number of families in the registry", async () => {
  for (
    const [document, count] of [["README.md", /(?<=^\| models \| )\d+(?= families)/m], [
      "CHANGELOG.md",
      /(?<=^- )\d+(?= families of GGUF models)/m,
    ]] as const
  ) {
    await assertMade(document, count, String(ARCHITECTURE_NAMES.length));
  }
});

Deno.test("claims: MODELS.md states the number of formats of tool calls in the registry", async () => {
  // The last format is the general format.
  await assertMade(
    "docs/MODELS.md",
    /(?<=tool calls in )\w+(?= formats of)/,
    String(CALL_FORMATS.length - 1),
  );
});

Deno.test("claims: the documents name the same families with images, and IMAGES.md has every kind of tower", async () => {
  const [readme, models, images] = await Promise.all(
    ["README.md", "docs/MODELS.md", "docs/IMAGES.md"].map(read),
  );
  const families = (text: string, list: RegExp) => list.exec(text)![1].split(/, | and (?!their)/);
  const named = families(readme, /\[images\]\(docs\/IMAGES\.md\) with ([^|]*) \|/);
  assertEquals(families(models, /^\| images in chats, on the CPU \| (.*):/m), named);
  assertEquals(families(images, /^(.*) and their/m), named);
  const numbers = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
  assert(readme.includes(`images with ${numbers[named.length]} model families`), String(named.length));
  const towers = cellsOf(
    images.slice(images.indexOf("| tower (`clip.projector_type`)")).split("\n\n")[0],
    /^`/,
  );
  assertEquals(towers.map(([kind]) => kind.slice(1, -1)).sort(), [...KINDS.keys()].sort());
  assertEquals(named.filter((family) => !towers.some(([, models]) => models.includes(family))), []);
  const decoders = towers.flatMap(([, , names]) => names.split(", "));
  assertEquals(decoders.filter((name) => !ARCHITECTURE_NAMES.includes(name)), []);
});

Deno.test("claims: CONVERT.md lists the model types whose vision tower the converter takes", async () => {
  const text = await read("docs/CONVERT.md");
  const table = text.slice(text.indexOf("| `model_type` with a tower |")).split("\n\n")[0];
  const listed = cellsOf(table, /^`(?!model_type)/).flatMap(([types]) => types.match(/(?<=`)\w+(?=`)/g)!);
  assertEquals(listed.sort(), [...TOWER_TYPES].sort());
});

Deno.test("claims: files of architectures that compy lacks are refused by name", async () => {
  for (const name of llamaCpp.names.filter((name) => !ARCHITECTURE_NAMES.includes(name))) {
    const { bytes } = new GgufBuilder().set("general.architecture", "STRING", name).build();
    const error = await assertRejects(() => readPlan(parseGguf(bytes)), GgufError);
    assertStringIncludes(error.message, `(got "${name}")`);
  }
});

Deno.test("claims: MODELS.md lists the kinds of tokenizers", async () => {
  const [[, kinds]] = cellsOf(await read("docs/MODELS.md"), /^tokenizers$/);
  assertEquals(kinds.match(/(?<=`)\w+(?=`)/g)!.sort(), [...TOKENIZER_KINDS].sort());
});

Deno.test("claims: MODELS.md names every type of the KV cache, and the README the versions of Deno and Rust", async () => {
  const [[, cache]] = cellsOf(await read("docs/MODELS.md"), /^KV cache$/);
  assertEquals(KV_TYPES.filter((type) => !new RegExp(`\\b${type}\``).test(cache)), []);
  const readme = await read("README.md");
  assertEquals([...new Set(readme.match(/(?<=deno@)[\d.]+\d/g))], [DENO_VERSION]);
  const [rust] = /(?<=^rust-version = ")[\d.]+/m.exec(await read("rust-kernels/Cargo.toml"))!;
  assert(readme.includes(`[Rust](https://rustup.rs) ${rust} or newer`), rust);
  assert(readme.includes(`[Deno](https://deno.com) ${OLDEST_DENO} or newer`), OLDEST_DENO);
});

Deno.test("claims: the README names ggml's version, and compy runs every weight type of that version", async () => {
  const [[, weights]] = cellsOf(await read("README.md"), /^weights$/);
  const [version] = ggml.source.match(/ggml [\d.]*\d/)!;
  assert(weights.includes(version), `${version} in ${weights}`);
  const others = ggml.types.filter(({ name, removed }) => !removed && !Object.hasOwn(FORMATS, name));
  // The other types hold activations, or numbers that are not weights.
  assertEquals(others.map(({ name }) => name), ["Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"]);
});

Deno.test("claims: CONVERT.md lists the model types and formats that the converter takes", async () => {
  const text = await read("docs/CONVERT.md");
  const table = text.slice(text.indexOf("| `model_type` |")).split("\n\n")[0];
  const listed = cellsOf(table, /^`/).flatMap(([types]) => types.match(/(?<=`)[^`, ]+(?=`)/g)!)
    .filter((type) => type !== "model_type");
  assertEquals([...new Set(listed)].sort(), [...MODEL_TYPES].sort());
  const formats = cellsOf(text.slice(text.indexOf("| type | values per block")).split("\n\n")[0], /^`/);
  assertEquals(formats.flatMap(([types]) => types.match(/\w+/g)!).sort(), [...QUANTIZE_TO].sort());
});

Deno.test("claims: API.md's table of routes has every endpoint", async () => {
  const text = await read("docs/API.md");
  const routes = text.slice(text.indexOf("## Routes")).split("\n\n")[1];
  const missing = [...ENDPOINTS, ...BATCH_ENDPOINTS].map(({ route: { path } }) => path)
    .filter((path) => !routes.includes(path.replace(/^.*(?=\/(results|cancel)$)/, "")));
  assertEquals(missing, []);
});

Deno.test("claims: documents about batches list the endpoints of batch lines", async () => {
  const urls = (text: string) => [...new Set(text.match(/(?<=`)\/[\w/]+(?=`)/g))].sort();
  const batch = await read("docs/BATCH.md");
  const line = /^- `method`: [^]*?(?=^- `body`)/m.exec(batch)![0];
  const [[, endpoints]] = cellsOf(await read("docs/BATCH_API.md"), /^`endpoint`$/);
  assertEquals(urls(line), [...GENERATION_URLS].sort());
  assertEquals(urls(endpoints), [...GENERATION_URLS].sort());
});

Deno.test("claims: the README's commands exist", async () => {
  const text = await read("README.md");
  const [more] = text.match(/^More commands: .*$/m)!;
  const named = [...text.matchAll(/deno task ([a-z]+)/g)].map(([, name]) => name)
    .concat(more.match(/(?<=`)[a-z]+(?=`)/g)!);
  const tasks = JSON.parse(await read("deno.json")).tasks;
  assertEquals(named.filter((name) => !Object.hasOwn(tasks, name)), []);
  const missing = (more.match(/(?<=`)[a-z]+(?=`)/g) as string[]).filter((name) =>
    !Object.hasOwn(COMMANDS, name)
  );
  assertEquals(missing, []);
});
