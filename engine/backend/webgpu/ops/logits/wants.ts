/** Layout of a row's logits request: `step_data.ts` writes it and kernels read it. */
import type { Draw } from "../../../backend.ts";

/** Words of a row's logits request. Lists of tokens follow after all rows. */
export const WANT_WORDS = 8;
/** Words of an adjusted token: its id, its penalty (1 for none), and the subtracted and added values, as f32. */
export const ADJUST_WORDS = 4;

const WANT = `
/* count of candidates; first probe and number of probes; first adjusted token and their number; first word
   of the mask (0 for none), of the answer, and of the draw (0 for none) */
struct Want { k: u32, probes: u32, probe_count: u32, adjusts: u32, adjust_count: u32, mask: u32, answer: u32, draw: u32 }
struct Op { vocabulary: u32, stride: u32, offset: u32, parts: u32, a: u32, b: u32, c: u32, d: u32 }
fn want_of(row: u32) -> Want {
  let i = ${WANT_WORDS}u * row;
  return Want(wants[i], wants[i + 1u], wants[i + 2u], wants[i + 3u], wants[i + 4u], wants[i + 5u], wants[i + 6u],
    wants[i + 7u]);
}`;

/**
 * Returns the beginning of each shader that reads logits requests: the op, the logits (read-only or not), and the
 * words.
 */
export function wantHead(logits: "read" | "read_write" = "read"): string {
  return `${WANT}
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<storage, ${logits}> logits: array<f32>;
@group(0) @binding(2) var<storage, read> wants: array<u32>;`;
}

/** Words at the head of an answer: count, log-sum-exp and standard deviation as f32. */
export const HEAD_WORDS = 3;

/** Words of a draw: flags, temperature, top-p, min-p, key, top-k, number of end tokens. The end tokens follow. */
export const DRAW_WORDS = 8;
/** Words of a drawn token at the end of the row's answer: the token, and its logit as f32. */
export const DRAWN_WORDS = 2;
export const WHOLE = 1;
export const MASS_OF_ALL = 2;

export function drawFlags({ whole, massOfAll }: Draw): number {
  return (whole ? WHOLE : 0) | (massOfAll ? MASS_OF_ALL : 0);
}

/**
 * WGSL that draws a token by a race (the Gumbel-max trick): the token with the largest logit / temperature - log(E)
 * wins, where E is exponentially distributed noise. E is a hash of key, position and token, so it does not depend on
 * what else a step computes.
 */
export const DRAW = `
const DRAW_WHOLE = ${WHOLE}u;
struct Draw {
  flags: u32, temperature: f32, top_p: f32, min_p: f32, key: vec2<u32>, top_k: u32, end_count: u32, ends: u32
}
fn draw_of(at: u32) -> Draw {
  return Draw(wants[at], bitcast<f32>(wants[at + 1u]), bitcast<f32>(wants[at + 2u]), bitcast<f32>(wants[at + 3u]),
    vec2(wants[at + 4u], wants[at + 5u]), wants[at + 6u], wants[at + 7u], at + ${DRAW_WORDS}u);
}

/* the finalizer of MurmurHash3 */
fn mix(x: u32) -> u32 {
  var h = (x ^ (x >> 16u)) * 0x85ebca6bu;
  h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
  return h ^ (h >> 16u);
}

fn score_of(draw: Draw, logit: f32, position: u32, token: u32) -> f32 {
  let h = mix(mix(mix(draw.key.x ^ (position * 0x9e3779b9u)) ^ draw.key.y) + token * 0x9e3779b9u);
  /* -log(1 - u); near 0, where races are won, by its series, since log is not exact there */
  let u = (f32(h) + 0.5) * exp2(-32.0);
  let rest = (f32(~h) + 0.5) * exp2(-32.0);
  let time = select(-log(rest), u + u * u * (0.5 + u / 3.0), u < 0.01);
  return logit / draw.temperature - log(time);
}`;
