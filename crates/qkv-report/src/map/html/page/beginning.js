// What happens when the page opens.
function asked() {
  const name = decodeURIComponent(location.hash.slice(1)) || facts.start;
  const found = heads.findIndex((_, index) => named(index) === name);
  return found < 0 ? 0 : found;
}
addEventListener("hashchange", () => choose(asked(), true));
addEventListener("resize", () => drawHead());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  drawGrid();
  drawHead();
});
(async () => {
  readColours();
  buildGrid();
  try {
    thumbs = await unpack("thumbs");
  } catch (error) {
    status.textContent = words.old_browser;
    throw error;
  }
  await choose(asked(), true);
  drawGrid();
  document.documentElement.dataset.drawn = Math.round(performance.now());
})();
