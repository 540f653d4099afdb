/** Levels of arrays and objects in a request's body: deep JSON parses, but cannot be written again (JSON.stringify throws). */
export const MAX_JSON_DEPTH = 64;

/** Whether a parsed value is nested deeper than `levels`. Needs no stack. */
export function isDeeper(root: unknown, levels: number): boolean {
  let level: object[] = isContainer(root) ? [root] : [];
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > levels) return true;
    const next: object[] = [];
    for (const container of level) {
      for (const child of Array.isArray(container) ? container : Object.values(container)) {
        if (isContainer(child)) next.push(child);
      }
    }
    level = next;
  }
  return false;
}

function isContainer(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
