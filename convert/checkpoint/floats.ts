import type { FloatType } from "../checkpoint/tensors.ts";

/** Returns little-endian floats as f32, exact for all three types. The bytes need no alignment. */
export function toFloats(type: FloatType, bytes: Uint8Array): Float32Array<ArrayBuffer> {
  const own = bytes.slice(); // an aligned copy
  if (type === "F32") return new Float32Array(own.buffer);
  if (type === "F16") return new Float32Array(new Float16Array(own.buffer));
  const halves = new Uint16Array(own.buffer);
  const words = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) words[i] = halves[i] << 16;
  return new Float32Array(words.buffer);
}
