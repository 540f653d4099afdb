import { kindOf, type PlanOp } from "./ops/registry.ts";
import type { KvLayer, KvShape } from "./values.ts";

/**
 * Estimated overhead of one more layer group, as a share of the memory: each group needs a block table in every step.
 */
const COST_OF_A_GROUP = 0.01;

/** Layers with a KV cache, in groups. All layers of a group have the same window and share block tables. */
export type KvGroups = Pick<KvShape, "layers" | "windows">;

/**
 * Returns the layers' groups. Layers with the same window form one or several groups. Blocks are as large as the
 * largest group, so sizes are chosen to waste little. If all layers have windows, those with the largest one keep all
 * tokens, because the first group's blocks are used to find prefixes.
 */
export function groupKvLayers(layers: readonly Omit<KvLayer, "group">[], ops: readonly PlanOp[]): KvGroups {
  const windows = windowsOf(layers.length, ops);
  const kinds = [...new Set(windows)].sort((a, b) => b - a);
  const byKind = kinds.map((kind) => [...layers.keys()].filter((i) => windows[i] === kind));
  const sizes = layers.map(({ heads, headDim }) => heads * headDim);
  const groups = smallest(candidateSizes(byKind, sizes).map((most) => packed(byKind, sizes, most)));
  const groupOf = (layer: number) => groups.findIndex((group) => group.layers.includes(layer));
  return {
    layers: layers.map(({ heads, headDim }, i) => ({ heads, headDim, group: groupOf(i) })),
    windows: groups.length === 0 ? [0] : groups.map(({ kind }) => kind === 0 ? 0 : finite(kinds[kind])),
  };
}

function finite(window: number): number {
  return window === Infinity ? 0 : window;
}

/** Returns each layer's largest window over the ops that read it; Infinity means all tokens. */
function windowsOf(layers: number, ops: readonly PlanOp[]): number[] {
  const windows = Array<number>(layers).fill(1);
  for (const op of ops) {
    const { cache, window = Infinity } = kindOf(op).context?.(op) ?? {};
    if (cache !== undefined) windows[cache] = Math.max(windows[cache], window);
  }
  return windows;
}

interface Group {
  /** Index of the group's window in the list of windows, largest first. */
  readonly kind: number;
  readonly layers: number[];
  size: number;
}

/** Returns candidate group sizes: sums of the first layers of one window. No other size wastes less. */
function candidateSizes(byKind: readonly number[][], sizes: readonly number[]): number[] {
  const largest = Math.max(...sizes);
  const sums = byKind.flatMap((kind) => {
    let sum = 0;
    return kind.map((layer) => sum += sizes[layer]);
  });
  return [...new Set(sums)].filter((sum) => sum >= largest);
}

/** Fills groups in order with layers of the same window, up to `most` values per token. */
function packed(byKind: readonly number[][], sizes: readonly number[], most: number): Group[] {
  const groups: Group[] = [];
  for (const [kind, layers] of byKind.entries()) {
    for (const layer of layers) {
      const last = groups.at(-1);
      if (last?.kind === kind && last.size + sizes[layer] <= most) {
        last.layers.push(layer);
        last.size += sizes[layer];
      } else groups.push({ kind, layers: [layer], size: sizes[layer] });
    }
  }
  return groups;
}

function smallest(ways: readonly Group[][]): Group[] {
  const cost = (groups: readonly Group[]) => {
    const block = Math.max(...groups.map(({ size }) => size));
    return groups.length * block * (1 + COST_OF_A_GROUP * groups.length);
  };
  return ways.reduce((best, way) => cost(way) < cost(best) ? way : best, ways[0] ?? []);
}
