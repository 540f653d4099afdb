/** How much faster a step with drafts must promise to be than one without: what it is known from is not exact. */
const WORTHWHILE = 1.05;
/** What a row costs at least, as a share of the step, whatever was measured. */
const LEAST_COST = 0.015;

/**
 * How many tokens of each sequence's draft a step should carry, so that it gives the most tokens a millisecond. `chances` has for
 * each sequence how likely its draft is to be right up to and with each of its tokens; `costs` the milliseconds of a step with 0,
 * 1, 2, ... rows of drafts; `certain` tokens come of the step without any.
 */
export function draftLengths(
  chances: readonly Float64Array[],
  costs: Float64Array, // [1 + most rows]
  certain: number,
): number[] {
  const lengths = chances.map(() => 0);
  const order: number[] = [];
  let gained = 0;
  let best = { rows: 0, rate: WORTHWHILE * certain / costs[0] };
  while (order.length + 1 < costs.length) {
    let likeliest = -1;
    let chance = 0;
    for (let i = 0; i < chances.length; i++) {
      const next = chances[i][lengths[i]];
      if (next > chance) [likeliest, chance] = [i, next];
    }
    if (likeliest < 0) break;
    lengths[likeliest]++;
    order.push(likeliest);
    gained += chance;
    const cost = Math.max(costs[order.length], costs[0] * (1 + LEAST_COST * order.length));
    const rate = (certain + gained) / cost;
    if (rate > best.rate) best = { rows: order.length, rate };
  }
  for (const i of order.slice(best.rows)) lengths[i]--;
  return lengths;
}
