/** The import graph of the repository's sources. */

/** Source texts by path from the repository's root. */
export type Sources = ReadonlyMap<string, string>;

export function withoutComments(source: string): string {
  return source.replace(/\/\*.*?\*\/|(?<!:)\/\/[^\n]*/gs, "");
}

/** Returns the files of this repository that a source imports, as paths from its root. */
export function importsOf(file: string, source: string): string[] {
  return [...withoutComments(source).matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]*)"/g)]
    .map(([, target]) => resolve(file, target));
}

/** Returns the files that a source names in texts without importing them: workers, child programs, scripts. */
export function namedBy(file: string, source: string, sources: Sources): string[] {
  return [...source.matchAll(/["'`]([\w./-]+\.(?:ts|js|mjs))["'`]/g)]
    .flatMap(([, name]) => [name, resolve(file, name)])
    .filter((path) => sources.has(path));
}

/** Returns the cycles of a graph: each strongly connected component with more than one file (Tarjan, 1972). */
export function cyclesOf(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (file: string): number => {
    const own = index.size;
    index.set(file, own);
    low.set(file, own);
    stack.push(file);
    for (const target of graph.get(file) ?? []) {
      const reached = index.has(target) ? (stack.includes(target) ? index.get(target)! : own) : visit(target);
      low.set(file, Math.min(low.get(file)!, reached));
    }
    if (low.get(file) === own) {
      const members = stack.splice(stack.indexOf(file));
      if (members.length > 1) cycles.push(members.sort());
    }
    return low.get(file)!;
  };
  for (const file of graph.keys()) if (!index.has(file)) visit(file);
  return cycles;
}

function resolve(file: string, target: string): string {
  return new URL(target, `file:///${file}`).pathname.slice(1);
}
