import { clientLeft } from "./errors.ts";

/** What ends the work on a request: aborted when its client leaves, as far as Deno notices. */
export function abortWhenLeft({ signal }: Request): AbortController {
  const abort = new AbortController();
  const leave = () => abort.abort(clientLeft());
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  return abort;
}
