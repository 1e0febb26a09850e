// Arrows move in the picture.
box.addEventListener("keydown", (event) => {
  if (!data) return;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const step = steps[event.key];
  if (!step || (state.view === "lines" && step[1])) return;
  event.preventDefault();
  if (state.view === "lines") {
    const row = Math.min(rows - 1, Math.max(0, state.query === null ? 0 : state.query + step[0]));
    const [top, bottom] = [row * ROW, (row + 1) * ROW];
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    return chooseRow(row);
  }
  const row = Math.floor((state.query ?? -merged) / merged) + step[0];
  const column = Math.floor((state.key ?? (step[1] ? -merged : 0)) / merged) + step[1];
  return pickCell([Math.min(high - 1, Math.max(0, row)), Math.min(wide - 1, Math.max(0, column))]);
});
