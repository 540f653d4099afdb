/** A step with drafts must promise to be this much faster, because the estimates are not exact. */
const WORTHWHILE = 1.05;
/** Lower bound of a row's cost, as a share of the step, whatever was measured. */
const LEAST_COST = 0.015;

/**
 * Returns how many draft tokens of each sequence a step should carry, to maximize tokens per millisecond.
 * `chances` holds per sequence the probability that its draft is right up to and including each token.
 * `costs` holds the milliseconds of a step with 0, 1, 2, ... draft rows. `certain` tokens come from the step
 * without drafts.
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
