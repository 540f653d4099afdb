import { PullError } from "./errors.ts";
import { isSafePath, quote } from "./names.ts";

/** A hub's repository and the model to take from it: by path, quantization, or the owner's name for the model. */
export interface HubSource {
  readonly kind: "hub";
  readonly owner: string;
  readonly repo: string;
  /** A branch, tag or commit; by default the main branch. */
  readonly revision: string | undefined;
  readonly wanted: string | undefined;
}

export interface UrlSource {
  readonly kind: "url";
  readonly url: URL;
}

export type Source = HubSource | UrlSource;

const HUB = /^hf:([^/@:]+)\/([^/@:]+)(?:@([^:]+))?(?::(.+))?$/s;
const PART = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,95})$/;

/** Parses a source: `hf:OWNER/REPO[@REVISION][:FILE or quantisation]` or an address. Throws PullError. */
export function parseSource(text: string): Source {
  if (text.startsWith("hf:")) return parseHub(text);
  return { kind: "url", url: parseAddress(text) };
}

function parseHub(text: string): HubSource {
  const match = HUB.exec(text);
  if (!match) {
    refuse(text, "must be hf:OWNER/REPO, hf:OWNER/REPO:QUANTISATION or hf:OWNER/REPO:FILE");
  }
  const [, owner, repo, revision, wanted] = match;
  for (const part of [owner, repo]) {
    if (!PART.test(part) || part.includes("..")) {
      refuse(text, `${quote(part)} must be letters, digits and "._-" and begin with a letter or a digit`);
    }
  }
  if (revision !== undefined && !isSafePath(revision)) {
    refuse(text, `the revision ${quote(revision)} must be a branch, a tag or a commit`);
  }
  if (wanted !== undefined && !isSafePath(wanted)) {
    refuse(
      text,
      `${quote(wanted)} must be the path of a file in the repository, without "..", or a quantisation`,
    );
  }
  return { kind: "hub", owner, repo, revision, wanted };
}

function parseAddress(text: string): URL {
  if (!URL.canParse(text)) {
    refuse(text, "must begin with hf: or https://, or be a name in the list of models");
  }
  const url = new URL(text);
  checkScheme(url, (why) => refuse(text, why));
  if (url.username !== "" || url.password !== "") {
    refuse(text.replace(/\/\/[^@]*@/, "//…@"), "an address must not contain a user name or password");
  }
  url.hash = "";
  return url;
}

/** Calls `refuse` for an address without TLS. */
export function checkScheme(url: URL, refuse: (why: string) => never): void {
  if (url.protocol === "https:") return;
  if (url.protocol === "http:" && isLoopback(url)) return;
  refuse(
    `must be an https address (http is allowed for this machine only; got ${url.protocol}//${url.host})`,
  );
}

export function isLoopback({ hostname }: URL): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** Parses a hub's address from `--mirror` or `HF_ENDPOINT`. Throws PullError. */
export function parseEndpoint(text: string): URL {
  const refuseHub = (why: string): never => {
    throw new PullError("PULL_SOURCE", `Invalid address of a hub ${quote(text)}: ${why}`);
  };
  if (!URL.canParse(text)) refuseHub("must be an https address");
  const url = new URL(text);
  checkScheme(url, refuseHub);
  if (url.username !== "" || url.password !== "") refuseHub("must not contain a user name or password");
  url.search = url.hash = "";
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}

function refuse(text: string, why: string): never {
  throw new PullError("PULL_SOURCE", `Cannot pull ${quote(text)}: ${why}`);
}

/** Returns a source as users write it, without an address's query, which may be secret. */
export function sourceText(source: Source): string {
  if (source.kind === "url") return `${source.url.origin}${source.url.pathname}`;
  const { owner, repo, revision, wanted } = source;
  return `hf:${owner}/${repo}${revision === undefined ? "" : `@${revision}`}${
    wanted === undefined ? "" : `:${wanted}`
  }`;
}
