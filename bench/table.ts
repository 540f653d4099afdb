/** Returns the rows as aligned lines: the first column to the left, the others to the right. */
export function asTable(rows: readonly (readonly string[])[]): string {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)));
  return rows.map((row) =>
    row.map((cell, i) => i === 0 ? cell.padEnd(widths[0]) : `  ${cell.padStart(widths[i])}`).join("")
      .trimEnd()
  ).join("\n") + "\n";
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}
