import { shipped } from "../../../../package.ts";
import type { Gpu } from "../device/gpu.ts";
import { fits, parseTunings, TUNING_FILE, tuningProblem, type TuningTable } from "./tuning.ts";

const FILE = shipped(TUNING_FILE);

/** Reads the tunings for an adapter. A file with an unusable entry is ignored, with one warning. */
export async function readTunings(
  { name, workgroupLanes }: Gpu,
  warn: (message: string) => void = () => {},
  file = FILE,
): Promise<TuningTable> {
  let text: string;
  try {
    text = await Deno.readTextFile(file);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) warn(complaint(file, String(error)));
    return new Map();
  }
  const problem = tuningProblem(text, name);
  if (problem !== undefined) {
    warn(complaint(file, problem));
    return new Map();
  }
  return new Map([...parseTunings(text, name)].filter(([, tuning]) => fits(tuning, workgroupLanes)));
}

function complaint(file: URL, reason: string): string {
  return `Ignored the GPU's tuning in ${file.pathname}: ${reason}. Delete it, or tune the GPU again ` +
    "(docs/WEBGPU.md says how)";
}
