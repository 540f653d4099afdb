import { DataFolder } from "../lib/serving.ts";
import { explained } from "../lib/system_errors.ts";

/**
 * Makes the folder of files and batches and locks it, which is cheap and comes before a large model is loaded. Throws Error where
 * nothing can be written there or another server uses it.
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  try {
    Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
    Deno.removeSync(Deno.makeTempFileSync({ dir: path, prefix: "writable-" }));
    return await DataFolder.open(path);
  } catch (error) {
    throw noDataFolder(path, error);
  }
}

/** Says what to do where files and batches cannot be kept. */
function noDataFolder(path: string, error: unknown): unknown {
  const what = `Cannot keep files and batches in "${path}"`;
  const otherwise = "choose another folder with --data, or serve without them: --data none";
  if (!(error instanceof Deno.errors.NotCapable)) return explained(what, error, otherwise);
  return new Error(
    `${what}: this task may write to .compy only. Allow it with deno run -P=serve --allow-write=${path} ` +
      `main.ts serve --data ${path}, or serve without them: --data none`,
  );
}
