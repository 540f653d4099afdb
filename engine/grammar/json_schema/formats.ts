/**
 * JSON schema formats as regular expressions, at least as strict as ajv-formats: RFC 3339, 4122, 3986, 5321, 1123,
 * 4291.
 */

const YEAR = "[0-9]{4}";
/** Pattern of leap years: divisible by 4, except centuries that are not divisible by 400. */
const LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const DATE = `(?:${YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])` +
  `|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|${LEAP_YEAR}-02-29)`;
const TIME =
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

const DAYS = "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)";
const HOURS = "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";

const LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
/** Pattern of host names: at most three labels of 63 characters, so never more than 253 in total. */
const HOST = `${LABEL}(?:\\.${LABEL}){0,2}`;
const ATEXT = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";

const BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const IPV4 = `(?:${BYTE}\\.){3}${BYTE}`;
const GROUP = "[0-9A-Fa-f]{1,4}";
const IPV6 = [
  `(?:${GROUP}:){7}${GROUP}`,
  ...Array.from({ length: 7 }, (_, before) => {
    const head = before === 0 ? ":" : `(?:${GROUP}:){${before}}`;
    const after = 7 - before;
    return `${head}:(?:${GROUP}(?::${GROUP}){0,${after - 1}})?`;
  }),
].join("|");

const PATH_CHARACTER = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const REGISTERED = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";
const URI =
  `[A-Za-z][A-Za-z0-9+.-]*://(?:${REGISTERED}+@)?${REGISTERED}+(?::[0-9]{1,5})?(?:/${PATH_CHARACTER}*)*` +
  `(?:\\?(?:${PATH_CHARACTER}|[/?])*)?(?:#(?:${PATH_CHARACTER}|[/?])*)?`;

const HEX = "[0-9A-Fa-f]";

export const FORMATS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    "date-time": `${DATE}T${TIME}`,
    "date": DATE,
    "time": TIME,
    "duration": `P(?:${DAYS}(?:${HOURS})?|${HOURS}|[0-9]{1,9}W)`,
    "email": `${ATEXT}(?:\\.${ATEXT})*@(?:${LABEL}\\.)+${LABEL}`,
    "hostname": HOST,
    "ipv4": IPV4,
    "ipv6": IPV6,
    "uri": URI,
    "uuid": `${HEX}{8}-(?:${HEX}{4}-){3}${HEX}{12}`,
  }).map(([name, pattern]) => [name, `^(?:${pattern})$`]),
);
