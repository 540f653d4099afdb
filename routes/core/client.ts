import { clientLeft } from "./errors.ts";

/** Returns a controller that aborts when the client disconnects, if Deno notices it. */
export function abortWhenLeft({ signal }: Request): AbortController {
  const abort = new AbortController();
  const leave = () => abort.abort(clientLeft());
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  return abort;
}
