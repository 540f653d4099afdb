/** Levels of arrays and objects in a request's body: deep JSON parses, but cannot be written again (JSON.stringify throws). */
export const MAX_JSON_DEPTH = 64;

/** Levels of arrays and objects in a parsed value. Needs no stack. */
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
