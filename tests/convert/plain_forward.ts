/**
 * A plain forward pass over the published values of a tiny checkpoint, in float64 and from the formulas. The
 * converter's reordering, transposing and adding must not change its result. It uses Hugging Face's conventions: V
 * heads grouped by K head, rotary pairs (i, i + half), Qwen3.5's norm weights minus 1.
 */

import { type ModelType, TINY, type TinyCheckpoint } from "../../testing/checkpoints.ts";
import { yarn, type YarnKeys } from "./yarn.ts";

type Rows = Float64Array[]; // [tokens] of [width]

/** Returns the log-probabilities of the token after `tokens`. `scaling` holds YaRN's keys in config.json. */
export function plainLogProbs(
  model: ModelType,
  { values }: TinyCheckpoint,
  tokens: readonly number[],
  scaling?: YarnKeys,
): Float64Array {
  const pass = new Pass(model, values, scaling);
  return pass.logProbs(tokens);
}

/**
 * The draft layer's log-probabilities of the token after `tokens`. The draft layer reads the rows before the last
 * token.
 */
export function plainDraft({ values }: TinyCheckpoint, tokens: readonly number[]): Float64Array {
  return new Pass("qwen3_5", values).draft(tokens);
}

class Pass {
  constructor(
    private readonly model: ModelType,
    private readonly values: ReadonlyMap<string, Float32Array>,
    private readonly scaling?: YarnKeys,
  ) {}

  logProbs(tokens: readonly number[]): Float64Array {
    return this.after(this.rows(tokens).at(-1)!);
  }

  /** An attention layer over a token's row and the previous row (zeros for the first). */
  draft(tokens: readonly number[]): Float64Array {
    const before = [new Float64Array(TINY.hidden), ...this.rows(tokens.slice(0, -1))];
    const e = this.norm(this.embed(tokens), "mtp.pre_fc_norm_embedding.weight");
    const h = this.norm(before, "mtp.pre_fc_norm_hidden.weight");
    const both = e.map((row, t) => Float64Array.of(...row, ...h[t]));
    const x = this.layer(this.linear(both, "mtp.fc"), "mtp.layers.0", false);
    return this.after(this.norm(x, "mtp.norm.weight").at(-1)!);
  }

  private embed(tokens: readonly number[]): Rows {
    const embedding = this.get("model.embed_tokens.weight");
    return tokens.map((id) =>
      Float64Array.from(embedding.subarray(id * TINY.hidden, (id + 1) * TINY.hidden))
    );
  }

  /** The rows after the last layer and the final norm. */
  private rows(tokens: readonly number[]): Rows {
    const { layers, interval } = TINY;
    let x = this.embed(tokens);
    for (let i = 0; i < layers; i++) {
      const linear = this.model === "qwen3_5" && (i + 1) % interval !== 0;
      x = this.layer(x, `model.layers.${i}`, linear);
    }
    return this.norm(x, "model.norm.weight");
  }

  private layer(before: Rows, layer: string, linear: boolean): Rows {
    const input = this.norm(before, `${layer}.input_layernorm.weight`);
    const x = add(
      before,
      linear ? this.delta(input, `${layer}.linear_attn`) : this.attend(input, `${layer}.self_attn`),
    );
    const h = this.norm(x, `${layer}.post_attention_layernorm.weight`);
    const gate = this.linear(h, `${layer}.mlp.gate_proj`);
    const up = this.linear(h, `${layer}.mlp.up_proj`);
    const gated = gate.map((row, t) => row.map((g, k) => silu(g) * up[t][k]));
    return add(x, this.linear(gated, `${layer}.mlp.down_proj`));
  }

  /** Returns log-probabilities of the token after a row. */
  private after(last: Float64Array): Float64Array {
    const [logits] = this.linear(
      [last],
      this.values.has("lm_head.weight") ? "lm_head" : "model.embed_tokens",
    );
    const max = Math.max(...logits);
    const logSum = max + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
    return logits.map((logit) => logit - logSum);
  }

  private get(name: string): Float32Array {
    const values = this.values.get(name);
    if (!values) throw new Error(`no tensor ${name}`);
    return values;
  }

  private linear(x: Rows, module: string): Rows {
    const weight = this.get(`${module}.weight`); // [rows, columns]
    return x.map((row) =>
      Float64Array.from({ length: weight.length / row.length }, (_, r) => {
        let sum = 0;
        for (let c = 0; c < row.length; c++) sum += weight[r * row.length + c] * row[c];
        return sum;
      })
    );
  }

  /** RMSNorm, weighted by 1 + w for Qwen3.5. */
  private norm(x: Rows, name: string): Rows {
    const weight = this.get(name);
    const one = this.model === "qwen3_5" ? 1 : 0;
    return x.map((row) => rms(row).map((value, i) => value * (one + weight[i])));
  }

  private attend(x: Rows, from: string): Rows {
    const { heads, kvHeads, headDim } = TINY;
    const gated = this.model === "qwen3_5";
    const queries = split(this.linear(x, `${from}.q_proj`), (gated ? 2 : 1) * headDim);
    const keys = split(this.linear(x, `${from}.k_proj`), headDim);
    const values = split(this.linear(x, `${from}.v_proj`), headDim);
    const ready = (head: Float64Array, part: "q" | "k", position: number) => {
      const name = `${from}.${part}_norm.weight`;
      return this.rotate(this.values.has(name) ? this.norm([head], name)[0] : head, position);
    };
    const cached = keys.map((row, t) => row.map((head) => ready(head, "k", t)));
    const out = queries.map((row, t) =>
      Float64Array.from(
        row.flatMap((both, h) => {
          const kv = Math.floor(h / (heads / kvHeads));
          const query = ready(both.subarray(0, headDim), "q", t);
          const scores = cached.slice(0, t + 1).map((k) => dot(query, k[kv]) / Math.sqrt(headDim));
          const weights = softmax(scores);
          const mixed = new Float64Array(headDim);
          weights.forEach((w, s) => values[s][kv].forEach((v, i) => mixed[i] += w * v));
          return Array.from(gated ? mixed.map((v, i) => v * sigmoid(both[headDim + i])) : mixed);
        }),
      )
    );
    return this.linear(out, `${from}.o_proj`);
  }

  /** Rotates the pairs (i, i + half) of the first dimensions. */
  private rotate(head: Float64Array, position: number): Float64Array {
    const rotated = this.model === "qwen3_5" ? head.length * TINY.partialRotary : head.length;
    const half = rotated / 2;
    const out = head.slice();
    const base = TINY.ropeBase[this.model];
    const scaled = this.scaling && yarn(base, rotated, this.scaling);
    for (let i = 0; i < half; i++) {
      const angle = position * (scaled?.frequencies[i] ?? base ** (-2 * i / rotated));
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)].map((value) => value * (scaled?.magnitude ?? 1));
      out[i] = head[i] * cos - head[i + half] * sin;
      out[i + half] = head[i] * sin + head[i + half] * cos;
    }
    return out;
  }

  /** Gated DeltaNet, one token after the other. */
  private delta(x: Rows, from: string): Rows {
    const { kHeads, vHeads, linearDim: dim } = TINY;
    const mixed = this.convolve(this.linear(x, `${from}.in_proj_qkv`), `${from}.conv1d.weight`);
    const z = split(this.linear(x, `${from}.in_proj_z`), dim);
    const a = this.linear(x, `${from}.in_proj_a`);
    const b = this.linear(x, `${from}.in_proj_b`);
    const [logA, dt, gain] = ["A_log", "dt_bias", "norm.weight"].map((name) => this.get(`${from}.${name}`));
    const states = Array.from({ length: vHeads }, () => new Float64Array(dim * dim)); // [value, key]
    const out = mixed.map((row, t) => {
      const heads = split([row], dim)[0];
      const result: number[] = [];
      for (let h = 0; h < vHeads; h++) {
        const group = Math.floor(h / (vHeads / kHeads));
        const q = unit(heads[group]).map((v) => v / Math.sqrt(dim));
        const k = unit(heads[kHeads + group]);
        const v = heads[2 * kHeads + h];
        const decay = Math.exp(-Math.exp(logA[h]) * Math.log1p(Math.exp(a[t][h] + dt[h])));
        const o = recur(states[h], decay, sigmoid(b[t][h]), q, k, v);
        result.push(...rms(o).map((value, i) => value * gain[i] * silu(z[t][h][i])));
      }
      return Float64Array.from(result);
    });
    return this.linear(out, `${from}.out_proj`);
  }

  /** Convolves each channel's last inputs (the current one with the last tap), then applies SiLU. */
  private convolve(x: Rows, name: string): Rows {
    const weight = this.get(name); // [channels, taps]
    const { taps } = TINY;
    return x.map((row, t) =>
      row.map((_, channel) => {
        let sum = 0;
        for (let tap = 0; tap < taps; tap++) {
          const past = t - (taps - 1) + tap;
          if (past >= 0) sum += weight[channel * taps + tap] * x[past][channel];
        }
        return silu(sum);
      })
    );
  }
}

/** Returns the delta rule's output S q for one token: S <- decay S; d = beta (v - S k); S <- S + d k^T. */
function recur(
  state: Float64Array,
  decay: number,
  beta: number,
  q: Float64Array,
  k: Float64Array,
  v: Float64Array,
): Float64Array {
  return v.map((value, row) => {
    const s = state.subarray(row * k.length, (row + 1) * k.length);
    s.forEach((old, i) => s[i] = decay * old);
    const d = beta * (value - dot(s, k));
    s.forEach((old, i) => s[i] = old + d * k[i]);
    return dot(s, q);
  });
}

function rms(row: Float64Array): Float64Array {
  const scale = 1 / Math.sqrt(dot(row, row) / row.length + TINY.epsilon);
  return row.map((value) => value * scale);
}

function unit(row: Float64Array): Float64Array {
  const norm = Math.max(Math.sqrt(dot(row, row)), TINY.epsilon);
  return row.map((value) => value / norm);
}

function softmax(scores: readonly number[]): number[] {
  const max = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - max));
  const sum = exps.reduce((a, b) => a + b);
  return exps.map((value) => value / sum);
}

function split(x: Rows, width: number): Float64Array[][] {
  return x.map((row) =>
    Array.from({ length: row.length / width }, (_, h) => row.subarray(h * width, (h + 1) * width))
  );
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

const add = (x: Rows, y: Rows): Rows => x.map((row, t) => row.map((value, i) => value + y[t][i]));
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const silu = (x: number) => x * sigmoid(x);
