// @ts-check / <reference lib="dom" /> Runs before the first paint, so that the page never flashes in the other theme.
try {
  const theme = localStorage.getItem("compy.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the page uses the system's theme.
}
