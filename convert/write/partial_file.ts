import { ConvertError } from "../errors.ts";

/**
 * A file under way: it grows beside its target, as TARGET.partial, and takes the target's name when it is complete. What
 * a killed process left under that name is replaced; while a live one holds it, a second is refused.
 */
export class PartialFile implements Disposable {
  private constructor(readonly path: string, readonly target: string, readonly file: Deno.FsFile) {}

  /** An empty file. Throws ConvertError where the target is there already, or another process writes it. */
  static async create(target: string): Promise<PartialFile> {
    await refuseExisting(target);
    const path = `${target}.partial`;
    const file = await Deno.open(path, { write: true, create: true });
    try {
      if (!await file.tryLock(true)) {
        throw new ConvertError(`Cannot write ${target}: another conversion writes ${path} at this moment`);
      }
      // Whoever held the lock may have become the target meanwhile.
      await refuseExisting(target);
      await file.truncate();
      return new PartialFile(path, target, file);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Gives the complete file its name. Throws ConvertError where a file of that name has come up. */
  async complete(): Promise<void> {
    await refuseExisting(this.target);
    await Deno.rename(this.path, this.target);
  }

  async discard(): Promise<void> {
    await Deno.remove(this.path).catch(() => {}); // why it is discarded counts, not that it could not be
  }

  [Symbol.dispose](): void {
    this.file.close();
  }
}

/** A file of somebody's is never written over. */
async function refuseExisting(path: string): Promise<void> {
  const found = await Deno.lstat(path).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  if (found) {
    throw new ConvertError(`Cannot write ${path}: it is there already; remove it or choose another name`);
  }
}
