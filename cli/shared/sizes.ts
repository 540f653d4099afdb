/** Returns a number of bytes in words, for example "1.9 GB". */
export function sizeInWords(bytes: number): string {
  const [unit, name] = bytes >= 1e9
    ? [1e9, "GB"] as const
    : bytes >= 1e6
    ? [1e6, "MB"] as const
    : [1e3, "kB"] as const;
  return `${(bytes / unit).toFixed(1)} ${name}`;
}
