/** Maximum nesting of a request body. JSON.parse accepts deeper JSON, but JSON.stringify throws for deeper values. */
export const MAX_JSON_DEPTH = 64;

/** Returns the nesting depth of arrays and objects in a parsed value, without recursion. */
export function depthOf(root: unknown): number {
  let level: object[] = isContainer(root) ? [root] : [];
  let depth = 0;
  for (; level.length > 0; depth++) {
    const next: object[] = [];
    for (const container of level) {
      for (const child of Array.isArray(container) ? container : Object.values(container)) {
        if (isContainer(child)) next.push(child);
      }
    }
    level = next;
  }
  return depth;
}

function isContainer(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
