import { ConvertError } from "../errors.ts";

/**
 * A file that is written as TARGET.partial and renamed to its target when complete. The new file replaces a partial
 * file of a killed process. While a live process writes it, a second process is refused.
 */
export class PartialFile implements Disposable {
  private constructor(readonly path: string, readonly target: string, readonly file: Deno.FsFile) {}

  /** Creates an empty file. Throws ConvertError if the target exists, or if another process writes it. */
  static async create(target: string): Promise<PartialFile> {
    await refuseExisting(target);
    const path = `${target}.partial`;
    const file = await Deno.open(path, { write: true, create: true });
    try {
      if (!await file.tryLock(true)) {
        throw new ConvertError(`Cannot write ${target}: another conversion writes ${path} at this moment`);
      }
      // Another process may have completed the target before releasing the lock.
      await refuseExisting(target);
      await file.truncate();
      return new PartialFile(path, target, file);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Renames the complete file to its target. Throws ConvertError if the target exists by now. */
  async complete(): Promise<void> {
    await refuseExisting(this.target);
    await Deno.rename(this.path, this.target);
  }

  async discard(): Promise<void> {
    await Deno.remove(this.path).catch(() => {}); // the reason for discarding matters more
  }

  [Symbol.dispose](): void {
    this.file.close();
  }
}

/** Throws ConvertError if the path exists: a user's file is never overwritten. */
async function refuseExisting(path: string): Promise<void> {
  const found = await Deno.lstat(path).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  if (found) {
    throw new ConvertError(`Cannot write ${path}: it already exists; remove it or choose another name`);
  }
}
