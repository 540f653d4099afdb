import { z } from "zod";
import { PullError, Transient } from "./errors.ts";
import type { HubClient } from "./http.ts";
import { isSafePath, quote } from "./names.ts";
import type { RetryPolicy } from "./retry_policy.ts";
import { type HubSource, sourceText } from "./source.ts";

/** A file on a hub. */
export interface RemoteFile {
  /** Path of the file in its repository. */
  readonly path: string;
  readonly url: URL;
  /** Size of the file in bytes; undefined until the download shows it. */
  readonly size: number | undefined;
  /** SHA-256 of the file in hex, if the hub knows it. */
  readonly sha256: string | undefined;
}

/** A repository at one commit. */
export interface Repository {
  readonly commit: string;
  /** The repository's GGUF files and their parts. */
  readonly files: readonly RemoteFile[];
}

/** Maximum bytes of a repository's listing. */
const MAX_LISTING = 32 * 2 ** 20;
/** Maximum bytes of a file: ten times the largest existing models. */
export const MAX_FILE_BYTES = 16 * 2 ** 40;

const SIZE = z.number().int().min(0);
const LISTING = z.object({
  sha: z.string().regex(/^[0-9a-f]{40,64}$/),
  siblings: z.array(z.object({
    rfilename: z.string(),
    size: SIZE.nullish(),
    lfs: z.object({ sha256: z.string().regex(/^[0-9a-f]{64}$/), size: SIZE }).nullish(),
  })).max(100_000),
});

/** Returns a repository's files from a hub. Throws PullError. */
export async function listRepository(
  client: HubClient,
  source: HubSource,
  retries: RetryPolicy,
  signal?: AbortSignal,
): Promise<Repository> {
  const { owner, repo, revision } = source;
  const at = revision === undefined ? "" : `/revision/${encodeURIComponent(revision)}`;
  const url = new URL(`api/models/${owner}/${repo}${at}?blobs=true`, client.endpoint);
  const json = await retries.retry(() => fetchJson(client, url, signal), signal);
  const { success, data, error } = LISTING.safeParse(json);
  if (!success) {
    const { path, message } = error.issues[0];
    throw protocol(source, `${quote(path.join("."))} is not as expected (${message})`);
  }
  const files = data.siblings.filter(({ rfilename }) => /\.gguf/i.test(rfilename)).map((sibling) => {
    const { rfilename: path, lfs } = sibling;
    if (!isSafePath(path)) throw protocol(source, `it names a file ${quote(path)}, which leaves its folder`);
    const size = lfs?.size ?? sibling.size ?? undefined;
    if (size !== undefined && size > MAX_FILE_BYTES) {
      throw protocol(source, `${quote(path)} would have ${size} bytes, more than any model`);
    }
    const encoded = path.split("/").map(encodeURIComponent).join("/");
    return {
      path,
      url: new URL(`${owner}/${repo}/resolve/${data.sha}/${encoded}`, client.endpoint),
      size,
      sha256: lfs?.sha256,
    };
  });
  return { commit: data.sha, files };
}

function protocol(source: HubSource, why: string): PullError {
  return new PullError(
    "PULL_PROTOCOL",
    `The hub's description of ${sourceText(source)} cannot be used: ${why}`,
  );
}

async function fetchJson(client: HubClient, url: URL, signal?: AbortSignal): Promise<unknown> {
  const { response } = await client.get(url, { signal });
  const text = await readText(response, client.stallMs);
  try {
    return JSON.parse(text);
  } catch {
    throw new Transient(`${url.host} answers with something that is not JSON`);
  }
}

/** Returns the text of a response of at most MAX_LISTING bytes. */
async function readText(response: Response, stallMs: number): Promise<string> {
  const reader = response.body?.getReader();
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const timer = setTimeout(() => void reader?.cancel().catch(() => {}), 2 * stallMs);
  try {
    while (true) {
      const { done, value } = await reader?.read() ?? { done: true, value: undefined };
      if (done) break;
      bytes += value!.length;
      if (bytes > MAX_LISTING) {
        throw new PullError("PULL_PROTOCOL", `The hub's description is longer than ${MAX_LISTING} bytes`);
      }
      chunks.push(value!);
    }
  } catch (error) {
    if (error instanceof PullError) throw error;
    throw new Transient("the hub's description was cut short");
  } finally {
    clearTimeout(timer);
    await reader?.cancel().catch(() => {});
  }
  return await new Blob(chunks as Uint8Array<ArrayBuffer>[]).text();
}
