import { MAX_CANDIDATES } from "../../../backend.ts";
import { kernelOf } from "../../kernels/kernel.ts";
import type { Kernel } from "../../kernels/types.ts";
import { bestOf, ROW } from "../shape.ts";
import { DRAW, HEAD_WORDS, MASS_OF_ALL, wantHead, WHOLE } from "./wants.ts";

const LANES = MAX_CANDIDATES;

/**
 * Returns the kernel that draws each row's token: from the whole vocabulary by the parts' best scores, or from the
 * candidates within top-k, top-p and min-p. The token is appended to the answer and becomes the row of the next step.
 * The drawn token does not depend on the number of requested candidates.
 */
export function drawKernel(): Kernel {
  const code = `
${wantHead()}
@group(0) @binding(3) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> answers: array<u32>;
@group(0) @binding(5) var<storage, read> chosen: array<u32>;
@group(0) @binding(6) var<storage, read_write> rows: array<Row>;
${ROW}
${DRAW}
${bestOf(LANES)}
var<workgroup> masses: array<f32, ${LANES}>;

@compute @workgroup_size(${LANES})
fn draw_tokens(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let want = want_of(group.x);
  let draw = draw_of(want.draw);
  let at = chosen[group.x];
  let row = rows[at];
  let count = min(answers[want.answer], draw.top_k);
  let ids = want.answer + ${HEAD_WORDS}u;
  let values = ids + want.k;
  let whole = (draw.flags & ${WHOLE}u) > 0u;
  var logit = -3.4e38;
  if (lane < count) { logit = bitcast<f32>(answers[values + lane]); }
  let top = bitcast<f32>(answers[values]);
  let mass = select(0.0, exp(logit - top), lane < count);
  masses[lane] = mass;
  workgroupBarrier();
  for (var reach = 1u; reach < ${LANES}u; reach <<= 1u) {
    var before = 0.0;
    if (lane >= reach) { before = masses[lane - reach]; }
    workgroupBarrier();
    masses[lane] += before;
    workgroupBarrier();
  }
  var all = masses[${LANES - 1}];
  if ((draw.flags & ${MASS_OF_ALL}u) > 0u) { all = exp(bitcast<f32>(answers[want.answer + 1u]) - top); }
  var best = Best(-3.4e38, ${LANES}u);
  let inside = draw.top_p >= 1.0 || masses[lane] - mass < draw.top_p * all;
  if (whole) {
    for (var i = lane; i < op.parts; i += ${LANES}u) {
      let part = parts[2u * (group.x * op.parts + i) + 1u];
      if (part.x > best.value) { best = Best(part.x, u32(part.y)); }
    }
  } else if (lane < count && (lane == 0u || (inside && mass >= draw.min_p))) {
    let score = score_of(draw, logit, row.y, answers[ids + lane]);
    best = Best(select(score, -f32(lane), draw.temperature == 0.0), lane);
  }
  best = best_of(lane, best.value, best.token);
  if (lane > 0u || want.draw == 0u) { return; }
  if (count == 0u || row.w == 1u) {
    answers[want.answer] = 0u;
    return;
  }
  var token = answers[ids];
  if (!whole) { token = answers[ids + best.token]; } else if (best.value > -3.4e38) { token = best.token; }
  let drawn = values + want.k + want.probe_count + want.adjust_count;
  answers[drawn] = token;
  answers[drawn + 1u] = bitcast<u32>(logits[group.x * op.stride + op.offset + token]);
  var ended = 0u;
  for (var i = 0u; i < draw.end_count; i++) { ended |= u32(wants[draw.ends + i] == token); }
  rows[at] = Row(token, row.y + 1u, row.z, ended);
}`;
  return kernelOf("draw_tokens", code, (_n, m) => [m, 1, 1]);
}
