/** Quantizers for the IQ1, IQ2 and IQ3 formats. */
import { Codebook } from "./codebook.ts";
import { best, codebookQuantizer, GROUPS, RUNS, scaleCodes } from "./codebook_search.ts";
import { putHalf, type Quantizer } from "./quantizers.ts";

const putAtStart = (d: number, out: Uint8Array, to: number) => putHalf(d, out, to);

/** Returns the index of the point for group `i` of eight values. */
const pointOf = (i: number) => best.points[RUNS * i];

/** Writes the 4-bit scales of `count` sub-blocks, two per byte. */
function writeScales(out: Uint8Array, to: number, count: number): void {
  for (let j = 0; j < count; j++) out[to + (j >> 1)] |= scaleCodes[j] << 4 * (j & 1);
}

/** Returns a 32-bit word for 32 values: seven signs per group of eight, and the scale in the highest 4 bits. */
function signsAndScale(sub: number): number {
  let word = scaleCodes[sub] << 28;
  for (let i = 0; i < 4; i++) word |= (best.signs[4 * sub + i] & 127) << 7 * i;
  return word;
}

function writeWord(out: Uint8Array, to: number, word: number): void {
  for (let i = 0; i < 4; i++) out[to + i] = word >>> 8 * i;
}

const MAGNITUDES_2 = [8, 25, 43];
const steps = (from: number, to: number) => Array.from({ length: 6 }, (_, i) => from + (to - from) * i / 5);

export const iq3_s: Quantizer = codebookQuantizer({
  type: "IQ3_S",
  bytes: 110,
  book: new Codebook("IQ3_S", [1, 3, 5, 7, 9, 11, 13, 15]),
  signs: "any",
  groups: 4,
  mostScale: 15,
  unit: 1,
  steps: steps(10, 18),
  putD: putAtStart,
  write(out, to) {
    for (let i = 0; i < 64; i++) {
      out[to + 2 + i] = best.points[i];
      out[to + 66 + (i >> 3)] |= best.points[i] >> 8 << (i & 7);
    }
    out.set(best.signs, to + 74);
    writeScales(out, to + 106, 8);
  },
});

export const iq3_xxs: Quantizer = codebookQuantizer({
  type: "IQ3_XXS",
  bytes: 98,
  book: new Codebook("IQ3_XXS", [4, 12, 20, 28, 36, 44, 52, 62]),
  signs: "even",
  groups: 4,
  mostScale: 15,
  unit: 0.25,
  steps: steps(40, 72),
  putD: putAtStart,
  write(out, to) {
    for (let i = 0; i < 64; i++) out[to + 2 + i] = best.points[i];
    for (let sub = 0; sub < 8; sub++) writeWord(out, to + 66 + 4 * sub, signsAndScale(sub));
  },
});

export const iq2_xxs: Quantizer = codebookQuantizer({
  type: "IQ2_XXS",
  bytes: 66,
  book: new Codebook("IQ2_XXS", MAGNITUDES_2),
  signs: "even",
  groups: 4,
  mostScale: 15,
  unit: 0.125,
  steps: steps(30, 66),
  putD: putAtStart,
  write(out, to) {
    for (let sub = 0; sub < 8; sub++) {
      for (let i = 0; i < 4; i++) out[to + 2 + 8 * sub + i] = pointOf(4 * sub + i);
      writeWord(out, to + 6 + 8 * sub, signsAndScale(sub));
    }
  },
});

export const iq2_xs: Quantizer = codebookQuantizer({
  type: "IQ2_XS",
  bytes: 74,
  book: new Codebook("IQ2_XS", MAGNITUDES_2),
  signs: "even",
  groups: 2,
  mostScale: 15,
  unit: 0.125,
  steps: steps(30, 66),
  putD: putAtStart,
  write(out, to) {
    for (let i = 0; i < GROUPS; i++) {
      out[to + 2 + 2 * i] = pointOf(i);
      out[to + 3 + 2 * i] = pointOf(i) >> 8 | (best.signs[i] & 127) << 1;
    }
    writeScales(out, to + 66, 16);
  },
});

export const iq2_s: Quantizer = codebookQuantizer({
  type: "IQ2_S",
  bytes: 82,
  book: new Codebook("IQ2_S", MAGNITUDES_2),
  signs: "any",
  groups: 2,
  mostScale: 15,
  unit: 0.125,
  steps: steps(30, 66),
  putD: putAtStart,
  write(out, to) {
    for (let i = 0; i < GROUPS; i++) {
      out[to + 2 + i] = pointOf(i);
      out[to + 66 + (i >> 2)] |= pointOf(i) >> 8 << 2 * (i & 3);
    }
    out.set(best.signs, to + 34);
    writeScales(out, to + 74, 16);
  },
});

const IQ1 = new Codebook("IQ1", [-1, 0, 1]);

export const iq1_s: Quantizer = codebookQuantizer({
  type: "IQ1_S",
  bytes: 50,
  book: IQ1,
  signs: "none",
  groups: 4,
  mostScale: 7,
  unit: 1,
  shifted: 4,
  steps: steps(0.9, 2.7),
  putD: putAtStart,
  write(out, to) {
    for (let sub = 0; sub < 8; sub++) {
      let head = scaleCodes[sub] << 12 | (best.shifts[4 * sub] < 0 ? 1 << 15 : 0);
      for (let i = 0; i < 4; i++) {
        out[to + 2 + 4 * sub + i] = pointOf(4 * sub + i);
        head |= pointOf(4 * sub + i) >> 8 << 3 * i;
      }
      out[to + 34 + 2 * sub] = head;
      out[to + 35 + 2 * sub] = head >> 8;
    }
  },
});

export const iq1_m: Quantizer = codebookQuantizer({
  type: "IQ1_M",
  bytes: 56,
  book: IQ1,
  signs: "none",
  groups: 2,
  mostScale: 7,
  unit: 1,
  shifted: 1,
  steps: steps(0.9, 2.7),
  // Each nibble of the half float becomes the highest nibble of one of four 16-bit words.
  putD(d, out, to) {
    const rounded = putHalf(d, out, to);
    const half = out[to] | out[to + 1] << 8;
    for (let i = 0; i < 4; i++) out[to + 49 + 2 * i] = (half >> 4 * i & 15) << 4;
    return rounded;
  },
  write(out, to) {
    out.fill(0, to, to + 48);
    for (let i = 0; i < GROUPS; i++) {
      out[to + i] = pointOf(i);
      out[to + 32 + (i >> 1)] |= (pointOf(i) >> 8 | (best.shifts[i] < 0 ? 8 : 0)) << 4 * (i & 1);
    }
    for (let j = 0; j < 16; j++) {
      const bit = 3 * (j & 3);
      out[to + 48 + 2 * (j >> 2)] |= scaleCodes[j] << bit;
      out[to + 49 + 2 * (j >> 2)] |= scaleCodes[j] << bit >> 8;
    }
  },
});
