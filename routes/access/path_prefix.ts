import { getPath } from "hono/utils/url";

/** Format of a path prefix, which has no trailing slash. */
export const PATH_PREFIX = /^(?:\/[A-Za-z0-9._~-]+)+$/;
/** A path that no route matches. */
const NOWHERE = "//";

/** Returns a function from a request to its path below the prefix. Paths outside the prefix match no route. */
export function pathBelow(prefix: string): (request: Request) => string {
  return (request) => {
    const path = getPath(request);
    return path.startsWith(`${prefix}/`) ? path.slice(prefix.length) : NOWHERE;
  };
}
