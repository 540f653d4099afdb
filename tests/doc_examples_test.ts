import { assert, assertEquals } from "@std/assert";
import { root } from "./commands.ts";

/*
 * The public API's documentation is complete, and its examples run. `deno task docs` runs them one by one and with their types
 * checked; here they share one module: loading the library fifty times takes longer than running them.
 */

const EXAMPLE = /^```ts\n(.*?)^```$/gms;
const IMPORT = /^import \{([^}]*)\} from "([^"]+)";\n/gm;

async function doc(...args: string[]): Promise<string> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["doc", "-q", ...args, "mod.ts"],
    cwd: root,
    env: { NO_COLOR: "1" },
  });
  const { success, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  assert(success, decoder.decode(stderr) + decoder.decode(stdout));
  return decoder.decode(stdout);
}

interface Documented {
  readonly name: string;
  readonly text: string;
}

/** The module and all that it exports, with their documentation. */
async function documented(): Promise<Documented[]> {
  const { nodes } = JSON.parse(await doc("--json"));
  const [{ module_doc, symbols }] = Object.values(nodes) as [{
    module_doc: { doc: string };
    symbols: { name: string; declarations: { jsDoc?: { doc?: string } }[] }[];
  }];
  const ofSymbols = symbols.map(({ name, declarations }) => {
    return { name, text: declarations.map(({ jsDoc }) => jsDoc?.doc ?? "").join("\n") };
  });
  return [{ name: "mod.ts", text: module_doc.doc }, ...ofSymbols];
}

/** Its examples, of the demo model where they name another. */
const examplesIn = (text: string) =>
  [...text.matchAll(EXAMPLE)].map(([, code]) => code.replaceAll('"FILE.gguf"', "undefined"));

/** One module of all examples, each a function. */
function moduleOf(examples: readonly (readonly [name: string, code: string])[]): string {
  const imports = new Map<string, Set<string>>();
  const bodies = examples.map(([name, code]) => {
    const body = code.replaceAll(IMPORT, (_, names: string, from: string) => {
      const known = imports.get(from) ?? new Set();
      imports.set(from, known);
      for (const name of names.split(",")) if (!/^\s*type /.test(name) && name.trim()) known.add(name.trim());
      return "";
    });
    return `[${JSON.stringify(name)}, async () => {\n${body}}],`;
  });
  const from = (name: string) => name === "compy" ? `file://${root}mod.ts` : import.meta.resolve(name);
  const lines = [...imports].map(([name, names]) =>
    `import { ${[...names].join(", ")} } from "${from(name)}";`
  );
  const quiet = "const console = { log() {}, warn() {}, error() {} };";
  return `${lines.join("\n")}\n${quiet}\nexport const examples = [\n${bodies.join("\n")}\n];\n`;
}

Deno.test("the public API is documented whole, and its types are public", async () => {
  await doc("--lint");
});

Deno.test("every public symbol has an example, and all examples run; so do those of docs/LIBRARY.md and the README", async (t) => {
  const symbols = await documented();
  const without = symbols.filter(({ text }) => examplesIn(text).length === 0);
  assertEquals(without.map(({ name }) => name), [], "these have no example");
  const guides = ["docs/LIBRARY.md", "README.md"].map((name) => ({
    name,
    text: Deno.readTextFileSync(root + name),
  }));
  const examples = [...symbols, ...guides]
    .flatMap(({ name, text }) => examplesIn(text).map((code) => [name, code] as const))
    .filter(([, code]) => code.includes('from "compy"')); // the README shows clients of a server too
  const folder = await Deno.makeTempDir({ prefix: "doc-examples-" });
  try {
    await Deno.writeTextFile(`${folder}/examples.ts`, moduleOf(examples));
    const { examples: run } = await import(`file://${folder}/examples.ts`);
    for (const [name, example] of run) await t.step(name, example);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
