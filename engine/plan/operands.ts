/**
 * Building blocks of an op's operands. Each op lists its operands once, in the order of encoding. Its buffers, tensors,
 * words and type follow from the list.
 */
import {
  type Activation,
  ACTIVATIONS,
  type BufferForm,
  type BufferId,
  type Choice,
  type Chosen,
  type ChosenBlocks,
  type ConvShape,
  type DeltaShape,
  type Forms,
  type HeadShape,
  type MambaShape,
  type TensorId,
} from "./values.ts";
import type { WordWriter } from "./words.ts";

/** Code of an absent operand. */
const NONE = 0xffffffff;

/** How an op accesses a buffer; "update" reads it and writes it in place. */
export type Access = "read" | "write" | "update";

export interface BufferUse {
  readonly buffer: BufferId;
  readonly form: BufferForm;
  readonly access: Access;
}

export interface TensorUse {
  readonly tensor: TensorId;
  /** Whether the matrix multiplies activations, so that it is read as a whole (only the chosen experts). */
  readonly product: boolean;
}

export interface Operand<T> {
  /** Writes the words of an operand's value. */
  encode(w: WordWriter, value: T): void;
  /** Number of words of the operand; undefined if it depends on the value. */
  readonly words?: number;
  buffers?(value: T): readonly BufferUse[];
  tensors?(value: T): readonly TensorUse[];
  /** Layers of the KV cache and of recurrent state that the operand names. */
  caches?(value: T): readonly number[];
  states?(value: T): readonly number[];
  /** Returns the number of experts, and the number that each row chooses. */
  choice?(value: T): Choice;
  /** Returns the operand with renumbered tensors. */
  renumber?(value: T, id: (old: TensorId) => TensorId): T;
}

// deno-lint-ignore no-explicit-any -- a list of operands of any types
export type Operands = Readonly<Record<string, Operand<any>>>;
type ValueOf<O> = O extends Operand<infer T> ? T : never;
type MayLack<L extends Operands> = {
  [K in keyof L]: undefined extends ValueOf<L[K]> ? K : never;
}[keyof L];

/** The value types of a list of operands. */
export type Values<L extends Operands> =
  & { readonly [K in Exclude<keyof L, MayLack<L>>]: ValueOf<L[K]> }
  & { readonly [K in MayLack<L>]?: ValueOf<L[K]> };

/** Pairs operands with their values, in the list's order. */
function pairs(list: Operands, values: object): [Operand<unknown>, unknown][] {
  const named = values as Readonly<Record<string, unknown>>;
  return Object.entries(list).map(([name, operand]) => [operand, named[name]]);
}

export function buffersOfAll(list: Operands, values: object): BufferUse[] {
  return pairs(list, values).flatMap(([operand, value]) => operand.buffers?.(value) ?? []);
}

export function tensorsOfAll(list: Operands, values: object): TensorUse[] {
  return pairs(list, values).flatMap(([operand, value]) => operand.tensors?.(value) ?? []);
}

/** Returns the layers of the KV cache, or of recurrent state, that the operands name. */
export function layersOfAll(kind: "caches" | "states", list: Operands, values: object): number[] {
  return pairs(list, values).flatMap(([operand, value]) => operand[kind]?.(value) ?? []);
}

/** Returns the number of experts that rows choose; undefined for operands without experts. */
export function choiceOfAll(list: Operands, values: object): Choice | undefined {
  return pairs(list, values).map(([operand, value]) => operand.choice?.(value)).find(Boolean);
}

export function renumberAll<T extends object>(list: Operands, values: T, id: (old: TensorId) => TensorId): T {
  const changed = Object.entries(values).map(([name, value]) => {
    const renumber = Object.hasOwn(list, name) ? list[name].renumber : undefined;
    return [name, renumber ? renumber(value, id) : value];
  });
  return Object.fromEntries(changed);
}

export function encodeAll(w: WordWriter, list: Operands, values: object): void {
  for (const [operand, value] of pairs(list, values)) operand.encode(w, value);
}

/** Operand: a buffer of f32 rows. */
export function floats(access: Access): Operand<BufferId> {
  return {
    words: 1,
    encode: (w, buffer) => w.u32(buffer),
    buffers: (buffer) => [{ buffer, form: "float", access }],
  };
}

const FORMS: readonly BufferForm[] = ["float", "quant", "fine"];

/**
 * Operand: a value in the forms that its readers need: f32 rows, and 8-bit rows in one plane or in two. With `count` 3,
 * both 8-bit forms may exist.
 */
export function forms(access: Access, count: 2 | 3): Operand<Forms> {
  const words = ({ float, quant, fine }: Forms) =>
    count === 3 ? [float, quant, fine] : [float, quant ?? fine];
  return {
    words: count,
    encode: (w, value) => w.u32(...words(value).map((id) => id ?? NONE)),
    buffers: (value) =>
      FORMS.flatMap((form) => value[form] === undefined ? [] : [{ buffer: value[form], form, access }]),
  };
}

function tensor(product: boolean): Operand<TensorId> {
  return {
    words: 1,
    encode: (w, id) => w.u32(id),
    tensors: (id) => [{ tensor: id, product }],
    renumber: (old, id) => id(old),
  };
}

/** Operand: a vector, or a matrix from which single rows are read. */
export const weights = tensor(false);
/** Operand: a matrix that multiplies rows of activations. */
export const product = tensor(true);

export const integer: Operand<number> = { words: 1, encode: (w, value) => w.u32(value) };
export const real: Operand<number> = { words: 1, encode: (w, value) => w.f32(value) };
export const flag: Operand<boolean> = { words: 1, encode: (w, value) => w.u32(value ? 1 : 0) };

export const activation: Operand<Activation> = {
  words: 1,
  encode: (w, value) => w.u32(ACTIVATIONS.indexOf(value)),
};

/** Operand: the experts that each row chose. */
export function chosenExperts(access: Access): Operand<Chosen> {
  return {
    words: 3,
    encode: (w, { buffer, count, used }) => w.u32(buffer, count, used),
    buffers: ({ buffer }) => [{ buffer, form: "float", access }],
    choice: (chosen) => chosen,
  };
}

/** Operand: the blocks of tokens that each row attends to; undefined if it attends to all tokens. */
export const chosenBlocks: Operand<ChosenBlocks | undefined> = {
  words: 3,
  encode: (w, chosen) => w.u32(chosen?.buffer ?? NONE, chosen?.count ?? 0, chosen?.length ?? 0),
  buffers: (chosen) => chosen ? [{ buffer: chosen.buffer, form: "float", access: "read" }] : [],
};

/** Operand: attention heads over a KV cache. */
export const attentionHeads: Operand<HeadShape> = {
  words: 5,
  encode: (w, { layer, heads, kvHeads, headDim, gated }) =>
    w.u32(layer, heads, kvHeads, headDim, gated ? 1 : 0),
  caches: ({ layer }) => [layer],
};

/** Operand: heads of a delta rule layer, which has a recurrent state. */
export const deltaHeads: Operand<DeltaShape> = {
  words: 5,
  encode: (w, { layer, keyHeads, valueHeads, headDim, inGroups }) =>
    w.u32(layer, keyHeads, valueHeads, headDim, inGroups ? 1 : 0),
  states: ({ layer }) => [layer],
};

/** Operand: channels of a short convolution; its last inputs are recurrent state. */
export const convHeads: Operand<ConvShape> = {
  words: 4,
  encode: (w, { layer, heads, headDim, keyHeads }) => w.u32(layer, heads, headDim, keyHeads),
  states: ({ layer }) => [layer],
};

/** Operand: heads of a Mamba2 layer, which has a recurrent state. */
export const mambaHeads: Operand<MambaShape> = {
  words: 5,
  encode: (w, { layer, heads, headDim, groups, stateSize }) =>
    w.u32(layer, heads, headDim, groups, stateSize),
  states: ({ layer }) => [layer],
};

/** Operand: a convolution over `taps` inputs. Its recurrent state holds all inputs except the current token's. */
export const convState: Operand<{ readonly layer: number; readonly taps: number }> = {
  words: 2,
  encode: (w, { layer, taps }) => w.u32(layer, taps),
  states: ({ layer }) => [layer],
};

/** Operand: a layer whose recurrent state is one row. */
export const rowState: Operand<number> = {
  words: 1,
  encode: (w, layer) => w.u32(layer),
  states: (layer) => [layer],
};

/** Returns an optional operand. The operand must have a fixed number of words. */
export function optional<T>(operand: Operand<T>): Operand<T | undefined> {
  const { words, renumber } = operand;
  if (words === undefined) throw new TypeError("Only operands of a fixed number of words can be absent");
  return {
    words,
    encode: (w, value) => {
      if (value === undefined) w.u32(...Array<number>(words).fill(NONE));
      else operand.encode(w, value);
    },
    buffers: (value) => value === undefined ? [] : operand.buffers?.(value) ?? [],
    tensors: (value) => value === undefined ? [] : operand.tensors?.(value) ?? [],
    renumber: renumber && ((value, id) => value === undefined ? undefined : renumber(value, id)),
  };
}

/** Returns one operand that encodes several. */
export function group<L extends Operands>(list: L): Operand<Values<L>> {
  const words = Object.values(list).map((operand) => operand.words);
  return {
    words: words.every((n) => n !== undefined) ? words.reduce((a, b) => a + b, 0) : undefined,
    encode: (w, values) => encodeAll(w, list, values),
    buffers: (values) => buffersOfAll(list, values),
    tensors: (values) => tensorsOfAll(list, values),
    renumber: (values, id) => renumberAll(list, values, id),
  };
}

/** Returns an operand for any number of operand groups, preceded by their count. */
export function groups<L extends Operands>(list: L): Operand<readonly Values<L>[]> {
  const one = group(list);
  return {
    encode: (w, all) => {
      w.u32(all.length);
      for (const values of all) one.encode(w, values);
    },
    buffers: (all) => all.flatMap((values) => one.buffers!(values)),
    tensors: (all) => all.flatMap((values) => one.tensors!(values)),
    renumber: (all, id) => all.map((values) => one.renumber!(values, id)),
  };
}
