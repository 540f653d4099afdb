/** Judges and prints the measurements of `deno task accuracy:webgpu`. */
import { asTable } from "../../bench/table.ts";
import type { Arithmetic } from "../../engine/backend/backend.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Distance } from "./teacher_forced.ts";

/** Names of the CPU settings: the file's own types, and its values in F32 so that no activation is rounded. */
export const CPU = "CPU";
export const EXACT = "CPU in F32";

/** Gates for the GPU's predictions over a text. */
const TEXT_GATES = { meanKl: 2e-4, top1: 0.995, perplexity: 1e-3 };

/** The error of products of one format. */
export interface ProductRow {
  readonly type: TensorType;
  readonly arithmetic: Arithmetic;
  readonly nmse: number;
  /** The worst error with adversarial activations. */
  readonly adversarial: number;
  readonly gate: number;
  readonly passes: boolean;
}

/** A distance, and whether it passes each gate; undefined without a gate. */
export interface Judged extends Distance {
  readonly model: string;
  readonly top1: number;
  readonly gates?: { readonly meanKl: boolean; readonly top1: boolean; readonly perplexity: boolean };
}

/**
 * Returns a distance with its gates. The CPU's own rounding has no gate, nor has the distance between the GPU and 8-bit
 * activations.
 */
export function judge(model: string, d: Distance): Judged {
  const top1 = d.same / d.tokens;
  if (d.from === CPU || d.of === CPU) return { ...d, model, top1 };
  const gates = {
    meanKl: d.meanKl <= TEXT_GATES.meanKl,
    top1: top1 >= TEXT_GATES.top1,
    perplexity: Math.abs(d.perplexity) <= TEXT_GATES.perplexity,
  };
  return { ...d, model, top1, gates };
}

export function passes({ gates }: Judged): boolean | undefined {
  return gates && gates.meanKl && gates.top1 && gates.perplexity;
}

const verdict = (passes: boolean | undefined) => passes === undefined ? "" : passes ? "pass" : "FAIL";
const e = (value: number) => value.toExponential(1);
const share = (value: number, digits = 2) => `${(100 * value).toFixed(digits)} %`;

export function productTable(rows: readonly ProductRow[]): string {
  const cells = rows.map((r) => [
    `${r.type} ${r.arithmetic}`,
    e(r.nmse),
    e(r.adversarial),
    e(r.gate),
    verdict(r.passes),
  ]);
  return asTable([["products", "NMSE", "adversarial", "gate", ""], ...cells]);
}

export function textTable(model: string, distances: readonly Judged[]): string {
  const cells = distances.map((d) => [
    `${d.of} from ${d.from}`,
    e(d.meanKl),
    e(d.worstKl),
    share(d.top1),
    d.same < d.tokens ? d.worstFlip.toFixed(4) : "",
    share(d.perplexity, 4),
    verdict(passes(d)),
  ]);
  const head = [
    `${model}, ${distances[0].tokens} tokens`,
    "mean KL",
    "worst KL",
    "top-1",
    "flip",
    "perplexity",
  ];
  return asTable([[...head, ""], ...cells]);
}

/** The worst distance of one pair of settings over all models. */
export interface Summary {
  readonly of: string;
  readonly from: string;
  readonly models: number;
  readonly tokens: number;
  readonly meanKl: number;
  readonly worstKl: number;
  /** Share of equal tokens over all models, and that of the worst model. */
  readonly top1: number;
  readonly leastTop1: number;
  readonly worstFlip: number;
  readonly perplexity: number;
  /** Models that fail a gate; absent if all models pass. */
  readonly failed?: Readonly<Record<keyof typeof TEXT_GATES, readonly string[]>>;
}

export function summarize(all: readonly Judged[]): Summary[] {
  const groups = Map.groupBy(all, ({ of, from }) => `${of} from ${from}`);
  return [...groups.values()].map((group) => {
    const worst = (value: (d: Judged) => number) => Math.max(...group.map(value));
    const sum = (value: (d: Judged) => number) => group.reduce((total, d) => total + value(d), 0);
    const failing = (gate: keyof typeof TEXT_GATES) =>
      group.filter(({ gates }) => gates && !gates[gate]).map(({ model }) => model);
    const tokens = sum((d) => d.tokens);
    return {
      of: group[0].of,
      from: group[0].from,
      models: group.length,
      tokens,
      meanKl: worst((d) => d.meanKl),
      worstKl: worst((d) => d.worstKl),
      top1: sum((d) => d.same) / tokens,
      leastTop1: -worst((d) => -d.top1),
      worstFlip: worst((d) => d.worstFlip),
      perplexity: worst((d) => Math.abs(d.perplexity)),
      failed: group[0].gates && {
        meanKl: failing("meanKl"),
        top1: failing("top1"),
        perplexity: failing("perplexity"),
      },
    };
  });
}

export function summaryTable(summaries: readonly Summary[]): string {
  const kept = (s: Summary, gate: keyof typeof TEXT_GATES) => {
    const failed = s.failed?.[gate].length;
    return failed === undefined ? "" : failed === 0 ? "pass" : `${failed} FAIL`;
  };
  const cells = summaries.map((s) => [
    `${s.of} from ${s.from}`,
    e(s.meanKl),
    kept(s, "meanKl"),
    share(s.top1),
    share(s.leastTop1),
    s.worstFlip.toFixed(4),
    kept(s, "top1"),
    share(s.perplexity, 4),
    kept(s, "perplexity"),
  ]);
  const { models, tokens } = summaries[0];
  const head = `the worst of ${models} models, ${tokens} tokens`;
  return asTable([[head, "mean KL", "", "top-1", "least", "flip", "", "perplexity", ""], ...cells]);
}

export const GATES_IN_WORDS = `Gates of a text: mean KL <= ${TEXT_GATES.meanKl}, top-1 >= ${
  share(TEXT_GATES.top1, 1)
}, perplexity within ${share(TEXT_GATES.perplexity, 1)}.\n`;
