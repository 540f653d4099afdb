/** Writes the library's type declarations for users of the bundle. */
import { dirname, join, relative } from "@std/path";
import ts from "typescript";

const OPTIONS: ts.CompilerOptions = {
  declaration: true,
  emitDeclarationOnly: true,
  // `deno check` has already checked the types.
  noCheck: true,
  skipLibCheck: true,
  stripInternal: true,
  allowImportingTsExtensions: true,
  rewriteRelativeImportExtensions: true,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  target: ts.ScriptTarget.ESNext,
  types: [],
};

/**
 * Writes the declarations of an entry point (`mod.ts`) and its dependencies into a folder, laid out as in the
 * repository. Returns the packages that they import.
 */
export async function writeDeclarations(root: string, entry: string, folder: string): Promise<Set<string>> {
  const emitted = new Map<string, string>();
  const program = ts.createProgram([join(root, entry)], { ...OPTIONS, rootDir: root, outDir: folder });
  program.emit(
    undefined,
    (path, text) => emitted.set(path, withoutUnused(text.replace(INTERNAL, ""))),
    undefined,
    true,
  );
  const packages = new Set<string>();
  for (const path of reachable(emitted, join(folder, entry.replace(/\.ts$/, ".d.ts")), packages)) {
    await Deno.mkdir(dirname(path), { recursive: true });
    await Deno.writeTextFile(path, emitted.get(path)!.replace(IMPORT, asJs));
  }
  return packages;
}

const IMPORT = /(\bfrom\s*|\bimport\s*\(\s*|^import\s*)"([^"]+)"/gm;

/** Pattern of internal re-exports, which `stripInternal` does not remove. */
const INTERNAL = /^\/\*\* @internal \*\/\s*export [^;]*;$/gm;

/** Removes imports that only internal declarations used. */
function withoutUnused(text: string): string {
  const code = text.replace(/\/\*[^]*?\*\//g, "");
  return text.replace(/^import (?:type )?\{([^}]*)\} from ("[^"]+");$/gm, (_, list: string, from: string) => {
    const used = list.split(",").map((name) => name.trim()).filter((name) => {
      const local = name.split(/\s+/).at(-1);
      return code.split(new RegExp(`\\b${local}\\b`)).length > 2;
    });
    return used.length === 0 ? "" : `import { ${used.join(", ")} } from ${from};`;
  });
}

/** Replaces an imported .ts path by the path of its JavaScript module. */
function asJs(whole: string, before: string, target: string): string {
  return target.startsWith(".") ? `${before}"${target.replace(/\.ts$/, ".js")}"` : whole;
}

/** Returns the declaration files that `entry` needs, including itself. Adds imported packages to `packages`. */
function reachable(emitted: ReadonlyMap<string, string>, entry: string, packages: Set<string>): Set<string> {
  const found = new Set<string>();
  const open = [entry];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue;
    const text = emitted.get(path);
    if (text === undefined) {
      throw new Error(`The declarations need ${relative(".", path)}, which was not emitted`);
    }
    found.add(path);
    for (const [, , target] of text.matchAll(IMPORT)) {
      if (!target.startsWith(".")) packages.add(target);
      else open.push(join(dirname(path), target.replace(/(\.d)?\.[tj]s$/, ".d.ts")));
    }
  }
  return found;
}
