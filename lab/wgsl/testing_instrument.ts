/** Shaders that count their own accesses while they run: what the count over the text is held against. */
import { dispatch, read, upload } from "../../engine/backend/webgpu/kernels/testing.ts";
import type { Kernel } from "../../engine/backend/webgpu/kernels/types.ts";

export interface Instrumented {
  readonly code: string;
  /** Storage variables, in the order of their counters. */
  readonly names: readonly string[];
  /** Where the counters are bound. */
  readonly binding: number;
}

const STORAGE = /@binding\((\d+)\) var<storage, \w+> (\w+)/g;

/** The shader with each index into a storage buffer going through a function that counts it. */
export function instrument(code: string): Instrumented {
  const declared = [...code.matchAll(STORAGE)];
  const names = declared.map(([, , name]) => name);
  const binding = 1 + Math.max(...declared.map(([, binding]) => Number(binding)));
  let text = code;
  for (const [i, name] of names.entries()) text = wrapIndices(text, name, `counted_${i}`);
  const counters = names.map((_, i) =>
    `fn counted_${i}(at: u32) -> u32 { atomicAdd(&accesses[${i}], 1u); return at; }`
  );
  const declaration = `@group(0) @binding(${binding}) var<storage, read_write> accesses: array<atomic<u32>>;`;
  const enable = /^enable f16;/.exec(text)?.[0] ?? "";
  return {
    code: [enable, declaration, ...counters, text.slice(enable.length)].join("\n"),
    names,
    binding,
  };
}

/** `name[at]` becomes `name[counted(at)]`, and in `at` too. */
function wrapIndices(text: string, name: string, counted: string): string {
  const start = new RegExp(`(?<![\\w.])${name}\\[`, "g");
  let out = "";
  let from = 0;
  for (let match = start.exec(text); match; match = start.exec(text)) {
    const open = match.index + match[0].length;
    let depth = 1;
    let at = open;
    for (; depth > 0; at++) depth += text[at] === "[" ? 1 : text[at] === "]" ? -1 : 0;
    out += `${text.slice(from, open)}${counted}(${wrapIndices(text.slice(open, at - 1), name, counted)})]`;
    start.lastIndex = from = at;
  }
  return out + text.slice(from);
}

/** Runs a kernel over zeros but for what is given, and tells how often each storage buffer was accessed. */
export async function accessesOf(
  device: GPUDevice,
  kernel: Kernel,
  workgroups: readonly [number, number, number],
  bindings: readonly { readonly binding: number; readonly bytes: number; readonly words?: Uint32Array }[],
): Promise<Map<string, number>> {
  const { code, names, binding } = instrument(kernel.code);
  const { STORAGE, COPY_SRC, UNIFORM } = GPUBufferUsage;
  const buffers = bindings.map(({ binding, bytes, words }): [number, GPUBuffer] => {
    const data = new Uint32Array(Math.ceil(bytes / 4));
    if (words) data.set(words);
    const uniform = new RegExp(`@binding\\(${binding}\\) var<uniform>`).test(kernel.code);
    return [binding, upload(device, data, uniform ? UNIFORM : STORAGE)];
  });
  const accesses = upload(device, new Uint32Array(names.length), STORAGE | COPY_SRC);
  await dispatch(device, { ...kernel, code }, workgroups, [...buffers, [binding, accesses]]);
  const found = new Uint32Array((await read(device, accesses)).buffer);
  for (const [, buffer] of [...buffers, [0, accesses] as const]) buffer.destroy();
  return new Map(names.map((name, i) => [name, found[i]]));
}
