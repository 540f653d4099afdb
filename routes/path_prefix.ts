import { getPath } from "hono/utils/url";

/** What a prefix of all paths looks like; it has no slash at its end. */
export const PATH_PREFIX = /^(?:\/[A-Za-z0-9._~-]+)+$/;
/** Where nothing is. */
const NOWHERE = "//";

/** The path that an app without the prefix would get; one outside it leads nowhere. */
export function pathBelow(prefix: string): (request: Request) => string {
  return (request) => {
    const path = getPath(request);
    return path.startsWith(`${prefix}/`) ? path.slice(prefix.length) : NOWHERE;
  };
}
