import { assert, assertEquals } from "@std/assert";
import { dirname, fromFileUrl, join } from "@std/path";
import { COMMANDS } from "../cli/commands.ts";
import { MODEL_TYPES } from "../convert/models.ts";
import { QUANTIZE_TO } from "../convert/quantize/quantize_to.ts";
import { ARCHITECTURE_NAMES } from "../engine/architectures/registry.ts";
import { FORMATS } from "../engine/gguf/formats.ts";
import ggml from "../engine/gguf/ggml_types.json" with { type: "json" };
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

Deno.test("claims: MODELS.md lists the architectures of the registry, each once, and no other", async () => {
  const rows = cellsOf(
    await read("docs/MODELS.md"),
    /^(decoders|hybrids|mixtures of experts|encoders) on the CPU/,
  );
  const words = withoutParentheses(rows.map(([, names]) => names).join(" ")).match(/[A-Za-z][\w.-]*\w/g)!;
  const named = words.filter((word) => !JOINING.has(word));
  // gemma4 is dense or has experts.
  assertEquals(named.sort(), [...ARCHITECTURE_NAMES, "gemma4"].sort());
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

Deno.test("claims: the README states the number of families in the registry", async () => {
  const path = join(ROOT, "README.md");
  const text = await Deno.readTextFile(path);
  const right = text.replace(
    /^\| models \| \d+ families/m,
    `| models | ${ARCHITECTURE_NAMES.length} families`,
  );
  if (Deno.env.get("UPDATE_SNAPSHOTS")) await Deno.writeTextFile(path, right);
  else assertEquals(text, right);
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
