// @ts-check

/** @param {number} value */
export function count(value) {
  return value.toLocaleString("en");
}

/** @param {number} value tokens a second, or another rate */
export function rate(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

/** @param {number} value */
export function bytes(value) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), units.length - 1);
  return `${(value / 1000 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

/** @param {number} seconds since 1970 */
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  return date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/**
 * Returns a file name that every operating system accepts.
 * @param {string} title
 * @param {string} extension
 */
export function fileName(title, extension) {
  const stem = title.normalize("NFC").replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|-+$/g, "");
  return `${stem.slice(0, 60) || "compy"}.${extension}`;
}
