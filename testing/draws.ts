/** A fake backend that samples tokens itself and computes several steps per call. */
import type {
  Abilities,
  Candidates,
  LogitsRequest,
  StepInput,
  StepOutput,
} from "../engine/backend/backend.ts";
import { FakeBackend } from "./engine.ts";

export class DrawingBackend extends FakeBackend {
  override readonly abilities: Abilities = { draws: this, copies: this, pools: true };
  /** Number of steps in each call of `decode`. */
  readonly calls: number[] = [];

  override async step(input: StepInput): Promise<StepOutput> {
    const { rows } = await super.step(input);
    return { rows: rows.map((row, i) => drawn(row, input, input.logits[i])) };
  }

  async decode(input: StepInput, steps: number): Promise<StepOutput[]> {
    this.calls.push(steps);
    const outputs: StepOutput[] = [];
    let next = input;
    for (let i = 0; i < steps; i++) {
      const output = await this.step(next);
      outputs.push(output);
      next = after(next, output);
    }
    return outputs;
  }
}

/** Returns the step that continues with the sampled tokens, even beyond a sequence's end. */
function after(input: StepInput, { rows }: StepOutput): StepInput {
  if (input.sequences.some(({ length, state }) => length > 1 || (state && state.read !== state.write))) {
    throw new Error("Steps at once of more than one row, or from another's state");
  }
  return {
    ...input,
    tokens: Int32Array.from(rows, ({ ids, drawn }) => ids[drawn!]),
    sequences: input.sequences.map((sequence) => ({ ...sequence, cached: sequence.cached + 1 })),
  };
}

/**
 * Samples the best token, or one that depends on key and position. FakeBackend already draws from the whole
 * vocabulary.
 */
function drawn(candidates: Candidates, input: StepInput, { draw, row, mask }: LogitsRequest): Candidates {
  if (!draw || draw.whole) return candidates;
  const { cached, start } = input.sequences.find(({ start, length }) =>
    row >= start && row < start + length
  )!;
  const { rawLogits, logits, ids } = candidates;
  const { length } = ids;
  const noise = (draw.key[0] ^ Math.imul(cached + row - start + 1, 0x9e3779b1)) >>> 0;
  // With a mask, the candidates are exactly the allowed tokens.
  const any = mask ? ids[noise % length] : noise % 200;
  const token = draw.temperature === 0 ? ids[0] : any;
  const known = ids.indexOf(token);
  if (known >= 0) return { ...candidates, drawn: known };
  return {
    ...candidates,
    ids: Int32Array.of(...ids, token),
    logits: Float32Array.of(...logits, logits[length - 1]),
    rawLogits: Float32Array.of(...rawLogits, rawLogits[length - 1]),
    drawn: length,
  };
}
