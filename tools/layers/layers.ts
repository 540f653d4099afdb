/**
 * Checks the rules of the source layout (`deno task layers`): imports, cycles, sizes, words of other layers, unused
 * files.
 */
import { fromFileUrl, join, relative } from "@std/path";
import { cyclesOf, importsOf, namedBy, type Sources, withoutComments } from "./imports.ts";
import {
  EXCEPTIONS,
  FINDS_ITSELF,
  LAYERS,
  MAX_FILES,
  MAX_LINES,
  NOT_FOR_TESTS,
  PACKAGE,
  SHARED,
  TEST,
} from "./rules.ts";

/** Returns what is wrong with one file. `file` is its path from the repository's root. */
export function check(file: string, source: string): string[] {
  if (TEST.test(file)) {
    return file.endsWith("_test.ts") && !/^(lab|bench)\//.test(file) ? checkTest(file, source) : [];
  }
  const layer = LAYERS.find(({ files }) => files.test(file));
  if (!layer) return [`${file} belongs to no layer; add its folder to tools/layers/rules.ts`];
  const checks = [checkPaths, checkBrowser, checkWords, checkLength];
  return checks.flatMap((check) => check(file, source)).concat(
    importsOf(file, source).flatMap((target) => {
      if (TEST.test(target)) return [`${file} imports ${target}: only tests may import test helpers`];
      return SHARED.includes(target) || layer.imports.test(target)
        ? []
        : [`${file} imports ${target}: ${layer.why}`];
    }),
  );
}

/** Returns the violations of rules that concern several files. */
export function checkAll(sources: Sources, roots: readonly string[]): string[] {
  const graph = new Map([...sources].map(([file, source]) => [file, importsOf(file, source)]));
  return [...checkCycles(graph), ...checkFolders([...sources.keys()]), ...checkReach(sources, graph, roots)];
}

function excepted(rule: "files" | "lines" | "cycle", path: string): boolean {
  return EXCEPTIONS.some((exception) => exception.rule === rule && exception.path.test(path));
}

function checkTest(file: string, source: string): string[] {
  return importsOf(file, source).filter((target) => NOT_FOR_TESTS.test(target))
    .map((target) => `${file} imports ${target}: tests depend on no experiment and no campaign`);
}

/** Returns the violations by code that locates files by its own path, which a bundle would break. */
function checkPaths(file: string, source: string): string[] {
  if (FINDS_ITSELF.test(file)) return [];
  if (!/\bimport\.meta\.(url|dirname|filename|resolve)\b/.test(withoutComments(source))) return [];
  return [`${file} uses its own path: find files that come with compy by shipped() of ${PACKAGE}`];
}

/** Returns the violations by Node's modules in the engine, which browsers load too. Types may be imported. */
function checkBrowser(file: string, source: string): string[] {
  if (!file.startsWith("engine/")) return [];
  const values = withoutComments(source).match(/^import (?!type )[^;]*"node:.*$/gm) ?? [];
  return values.map((line) =>
    `${file} has ${line} Use process.getBuiltinModule(), as browsers load the engine`
  );
}

/** Returns the violations by command-line options and HTTP paths in the engine: only cli/ and routes/ may word them. */
function checkWords(file: string, source: string): string[] {
  if (!/^(engine|convert)\//.test(file)) return [];
  const code = withoutComments(source);
  const texts = code.match(/"[^"\n]*"|'[^'\n]*'|`[^`]*`/g) ?? [];
  const flags = texts.flatMap((text) => text.match(/(?<![\w-])--[a-z][a-z-]+/g) ?? []);
  const words = [...flags, ...code.match(/\/v1\//g) ?? []];
  const problems = words.map((word) => `${file} contains "${word}": cli/ and routes/ word advice`);
  if (!file.startsWith("engine/api/")) return problems;
  const values = code.match(/^(import(?! type)|export .* from) .*$/gm) ?? [];
  return [...problems, ...values.map((line) => `${file} imports values: ${line}`)];
}

function checkLength(file: string, source: string): string[] {
  const lines = source.split("\n").length - 1;
  if (lines <= MAX_LINES || excepted("lines", file)) return [];
  return [`${file} has ${lines} lines: at most ${MAX_LINES} are allowed`];
}

function checkCycles(graph: ReadonlyMap<string, readonly string[]>): string[] {
  return cyclesOf(graph).flatMap((files) => {
    const folders = new Set(files.map(folderOf));
    if (folders.size === 1 && excepted("cycle", files[0])) return [];
    return [`${files.length} files import each other: ${files.join(", ")}`];
  });
}

function checkFolders(files: readonly string[]): string[] {
  const counts = Map.groupBy(files.filter((file) => !/_test\.ts$|(^|\/)testing[^/]*$/.test(file)), folderOf);
  return [...counts].flatMap(([folder, { length }]) => {
    if (length <= MAX_FILES || excepted("files", folder)) return [];
    return [`${folder}/ has ${length} source files: at most ${MAX_FILES} are allowed in a folder`];
  });
}

function checkReach(
  sources: Sources,
  graph: ReadonlyMap<string, readonly string[]>,
  roots: readonly string[],
): string[] {
  const reached = new Set<string>();
  const queue = roots.filter((file) => sources.has(file));
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (reached.has(file)) continue;
    reached.add(file);
    const next = [...graph.get(file) ?? [], ...namedBy(file, sources.get(file)!, sources)];
    queue.push(...next.filter((target) => sources.has(target)));
  }
  return [...sources.keys()].filter((file) => !reached.has(file))
    .map((file) => `${file} is not reachable from main.ts, mod.ts, a task or a test`);
}

const folderOf = (file: string) => file.slice(0, Math.max(0, file.lastIndexOf("/")));

const NOT_SOURCE = new Set(["dist", "node_modules", "target"]);

/** Yields the TypeScript files under a folder, without built and downloaded ones. */
async function* walk(folder: string): AsyncGenerator<string> {
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    if (name.startsWith(".") || NOT_SOURCE.has(name)) continue;
    if (isDirectory) yield* walk(join(folder, name));
    else if (name.endsWith(".ts")) yield join(folder, name);
  }
}

/** Returns the files where execution starts: entry points, tests, examples, and files that a task or a script names. */
async function rootsOf(root: string, files: readonly string[]): Promise<string[]> {
  const tasks = await Deno.readTextFile(join(root, "deno.json"));
  return files.filter((file) =>
    file === "main.ts" || file === "mod.ts" || file.endsWith("_test.ts") ||
    /^(examples|deploy)\//.test(file) ||
    tasks.includes(file)
  );
}

async function main(): Promise<number> {
  const root = fromFileUrl(new URL("../..", import.meta.url));
  const sources = new Map<string, string>();
  for await (const path of walk(root)) {
    sources.set(relative(root, path).replaceAll("\\", "/"), await Deno.readTextFile(path));
  }
  const problems = [
    ...[...sources].flatMap(([file, source]) => check(file, source)),
    ...checkAll(sources, await rootsOf(root, [...sources.keys()])),
  ];
  for (const problem of problems) Deno.stderr.writeSync(new TextEncoder().encode(`${problem}\n`));
  return problems.length > 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
