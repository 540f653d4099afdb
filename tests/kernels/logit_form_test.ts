/** A model's logit scale and softcap apply first: probes, candidates, masks, spreads and draws use the result. */
import { assert, assertAlmostEquals, assertEquals, fail } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import {
  type Candidates,
  type Draw,
  greedyRequest,
  type LogitsRequest,
  MAX_CANDIDATES,
} from "../../engine/backend/backend.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";

const VOCABULARY = 500;
const ALL = Int32Array.from({ length: VOCABULARY }, (_, token) => token);
const LIMITS = { kvBlocks: 4, maxRows: 4, maxLogitRows: 4 };
const FORMS = [{ scale: 0.25, softcap: 0 }, { scale: 1, softcap: 3 }, { scale: 2, softcap: 5 }];

interface Form {
  readonly scale: number;
  readonly softcap: number;
}

const formed = ({ scale, softcap }: Form, logit: number) =>
  softcap === 0 ? scale * logit : softcap * Math.tanh(scale * logit / softcap);

/** Returns the plan with this logit transformation. */
function withForm(plan: Plan, form: Form): Plan {
  return { ...plan, ops: plan.ops.map((op) => op.op === "candidates" ? { ...op, ...form } : op) };
}

/** The results after one token, one row per request. */
async function answers(
  type: TensorType,
  form: Form,
  requests: readonly Partial<LogitsRequest>[],
): Promise<Candidates[]> {
  const bytes = synthesize({
    architecture: "qwen3",
    types: [type],
    layers: 1,
    seed: 9,
    vocabulary: VOCABULARY,
  });
  using model = await KernelModel.loadAs((file) => withForm(buildPlan(file), form), bytes, LIMITS);
  const sequences = requests.map((_, start) => (
    { start, length: 1, cached: 0, blockTable: Int32Array.of(start), windowTables: [] }
  ));
  const tokens = new Int32Array(requests.length).fill(7);
  const logits = requests.map((request, row) => ({ ...greedyRequest(row), ...request }));
  return (await model.backend.step({ tokens, sequences, logits })).rows;
}

function logSumExp(logits: readonly number[]): number {
  return Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0));
}

for (const type of ["F32", "Q8_0"] as const) {
  for (const form of FORMS) {
    const what = `${type}, scale ${form.scale}, softcap ${form.softcap}`;

    Deno.test(`${what}: changes the logits and the log-sum-exp as the formula says`, async () => {
      const [[plain], [found]] = [
        await answers(type, { scale: 1, softcap: 0 }, [{ probe: ALL }]),
        await answers(type, form, [{ probe: ALL }]),
      ];
      const expected = Array.from(plain.probed, (logit) => formed(form, logit));
      expected.forEach((logit, token) => assertAlmostEquals(found.probed[token], logit, 2e-5));
      assertAlmostEquals(found.logSumExp, logSumExp(expected), 1e-4);
    });

    Deno.test(`${what}: candidates have the same logits as probed tokens, with and without a mask`, async () => {
      const allowed = ALL.filter((token) => token % 3 === 1);
      const mask = new Uint32Array(Math.ceil(VOCABULARY / 32));
      for (const token of allowed) mask[token >> 5] |= 1 << (token & 31);
      const [probed, best, masked] = await answers(type, form, [
        { probe: ALL, candidates: 20 },
        { candidates: 20 },
        { candidates: 20, mask: Promise.resolve(mask) },
      ]);
      assertEquals(best.ids, probed.ids);
      assertEquals(best.logits, probed.logits);
      assert(masked.ids.every((token) => token % 3 === 1));
      masked.ids.forEach((token, i) => assertAlmostEquals(masked.logits[i], probed.probed[token], 0.05));
      if (type === "F32") {
        assertEquals([...masked.logits], [...masked.ids].map((token) => probed.probed[token]));
      }
    });

    Deno.test(`${what}: a token drawn from the whole vocabulary has the probed logit`, async () => {
      const [probed] = await answers(type, form, [{ probe: ALL }]);
      const draw = (row: number): Draw => ({
        temperature: 1,
        topK: MAX_CANDIDATES,
        topP: 1,
        minP: 0,
        whole: true,
        massOfAll: true,
        key: [Math.imul(row + 1, 0x9e3779b1) >>> 0, row],
        ends: new Int32Array(0),
      });
      const rows = await answers(type, form, [0, 1, 2, 3].map((row) => ({ draw: draw(row) })));
      for (const { ids, logits, drawn } of rows) {
        const at = drawn ?? fail("nothing was drawn");
        assertAlmostEquals(logits[at], probed.probed[ids[at]], 0.05);
      }
    });
  }
}
