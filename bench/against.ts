import { benchModel, type BenchOptions, type BenchReport } from "./model.ts";
import { median } from "./samples.ts";

const ROUNDS = 3;

/** One workload on two models. Rates are medians over the rounds. The ratio's range covers single rounds. */
export interface AgainstRow {
  readonly work: string;
  readonly sequences: number;
  readonly context: number;
  readonly first: number;
  readonly second: number;
  readonly ratio: number;
  readonly lowest: number;
  readonly highest: number;
}

/** Measures two models in turn, several times. Throws as `benchModel` does. */
export async function benchAgainst(
  options: BenchOptions,
  other: string,
): Promise<{ models: string[]; rows: AgainstRow[] }> {
  const rounds: [BenchReport, BenchReport][] = [];
  for (let i = 0; i < ROUNDS; i++) {
    const [first, second] = [await benchModel(options), await benchModel({ ...options, model: other })];
    checkAlike(first, second);
    rounds.push([first, second]);
  }
  const rows = rounds[0][0].rows.map(({ work, sequences, context }, row) => {
    const rates = rounds.map((reports) => reports.map((report) => report.rows[row].tokensPerSecond));
    const ratios = rates.map(([first, second]) => first / second);
    const [first, second] = [0, 1].map((side) => median(rates.map((pair) => pair[side])));
    const [lowest, highest] = [Math.min(...ratios), Math.max(...ratios)];
    return { work, sequences, context, first, second, ratio: first / second, lowest, highest };
  });
  return { models: rounds[0].map((report) => report.model), rows };
}

/** Throws if one model embeds texts and another answers prompts. */
export function checkAlike(...reports: readonly Pick<BenchReport, "model" | "rows">[]): void {
  const embeds = reports.map(({ rows }) => rows.some(({ work }) => work === "texts"));
  if (embeds[0] === embeds[1]) return;
  const [encoder, decoder] = embeds[0] ? reports : reports.toReversed();
  throw new Error(
    `Cannot compare ${encoder.model} with ${decoder.model}: the first is an encoder, which embeds texts, the second answers prompts`,
  );
}
