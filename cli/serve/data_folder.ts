import { quoted } from "../shared/start.ts";
import { BatchStore, DataFolder } from "../../lib/serving.ts";
import { explained } from "../../lib/system_errors.ts";

/**
 * Creates and locks the folder of files and batches. Call it before loading a large model. Throws Error if the folder
 * is not writable, is in use, or holds a database of another version.
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  let folder: DataFolder | undefined;
  try {
    Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
    Deno.removeSync(Deno.makeTempFileSync({ dir: path, prefix: "writable-" }));
    folder = await DataFolder.open(path);
    new BatchStore(folder.database).close();
    return folder;
  } catch (error) {
    folder?.close();
    throw noDataFolder(path, error);
  }
}

/** Returns an error that says what to do when files and batches cannot be stored. */
function noDataFolder(path: string, error: unknown): unknown {
  const what = `Cannot keep files and batches in "${path}"`;
  const otherwise = "choose another folder with --data, or serve without them: --data none";
  if (!(error instanceof Deno.errors.NotCapable)) return explained(what, error, otherwise);
  return new Error(
    `${what}: this task may write to .compy only. Allow it with deno run -P=serve --allow-write=${
      quoted(path)
    } ` +
      `main.ts serve --data ${quoted(path)}, or serve without them: --data none`,
  );
}
