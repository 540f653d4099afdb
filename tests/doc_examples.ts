/**
 * Puts the examples of the public API's documentation into one module, because loading the library fifty times takes
 * longer than running them. `deno task docs` checks their types; the suite runs them.
 */
import { fromFileUrl } from "@std/path";

const ROOT = fromFileUrl(new URL("..", import.meta.url));
const GUIDES = ["docs/LIBRARY.md", "README.md"];
const EXAMPLE = /^```ts\n(.*?)^```$/gms;
const IMPORT = /^import \{([^}]*)\} from "([^"]+)";\n/gm;

/** Runs `deno doc` on the library. Throws its errors. */
export async function doc(...args: string[]): Promise<string> {
  return await deno("doc", "-q", ...args, "mod.ts");
}

async function deno(...args: string[]): Promise<string> {
  const command = new Deno.Command(Deno.execPath(), { args, cwd: ROOT, env: { NO_COLOR: "1" } });
  const { success, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  if (success) return decoder.decode(stdout);
  throw new Error(decoder.decode(stderr) + decoder.decode(stdout));
}

export interface Documented {
  readonly name: string;
  readonly examples: readonly string[];
}

/** Returns the library's module and its exports. */
export async function documented(): Promise<Documented[]> {
  const { nodes } = JSON.parse(await doc("--json"));
  const [{ module_doc, symbols }] = Object.values(nodes) as [{
    module_doc: { doc: string };
    symbols: { name: string; declarations: { jsDoc?: { doc?: string } }[] }[];
  }];
  const ofSymbols = symbols.map(({ name, declarations }) => {
    return { name, examples: examplesIn(declarations.map(({ jsDoc }) => jsDoc?.doc ?? "").join("\n")) };
  });
  return [{ name: "mod.ts", examples: examplesIn(module_doc.doc) }, ...ofSymbols];
}

/** The library's examples in a text, without server clients. The demo model replaces model names. */
function examplesIn(text: string): string[] {
  return [...text.matchAll(EXAMPLE)]
    .map(([, code]) => code.replaceAll('"FILE.gguf"', "undefined"))
    .filter((code) => code.includes('from "compy"'));
}

/** A module that exports `examples`: functions with the names of their symbols. */
export async function moduleOfExamples(symbols: readonly Documented[]): Promise<string> {
  const guides = await Promise.all(GUIDES.map(async (name) => {
    return { name, examples: examplesIn(await Deno.readTextFile(ROOT + name)) };
  }));
  const imports = new Map<string, Set<string>>();
  const examples = [...symbols, ...guides].flatMap(({ name, examples }) =>
    examples.map((code) => {
      const body = code.replaceAll(IMPORT, (_, names: string, from: string) => {
        const known = imports.get(from) ?? new Set();
        imports.set(from, known);
        for (const name of names.split(",")) if (name.trim()) known.add(name.trim());
        return "";
      });
      return `[${JSON.stringify(name)}, async () => {\n${body}}],`;
    })
  );
  const config = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  const from = (name: string) => name === "compy" ? `file://${ROOT}mod.ts` : config.imports[name];
  const lines = [...imports].map(([name, names]) => {
    const wanted = [...names].filter((name) =>
      !names.has(name.replace("type ", "")) || !name.startsWith("type ")
    );
    return `import { ${wanted.join(", ")} } from "${from(name)}";`;
  });
  const quiet = "const console = { log(..._: unknown[]) {}, warn(_: string) {}, error(_: string) {} };";
  const head = "export const examples: (readonly [string, () => Promise<void>])[] = [";
  return `${lines.join("\n")}\n${quiet}\n${head}\n${examples.join("\n")}\n];\n`;
}

if (import.meta.main) {
  const folder = await Deno.makeTempDir({ prefix: "doc-examples-" });
  try {
    await Deno.writeTextFile(`${folder}/examples.ts`, await moduleOfExamples(await documented()));
    await deno("check", "-q", "--config", `${ROOT}deno.json`, `${folder}/examples.ts`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
