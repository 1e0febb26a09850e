// The matrix.
const canvas = make("canvas");
const picture = make("canvas");
let cell = 1;
let edge = { left: 0, top: 0 };
function drawMatrix() {
  if (canvas.parentNode !== box) box.replaceChildren(canvas);
  const isNamed = !isLong && Math.max(rows, columns) <= 64;
  edge = isNamed ? { left: 118, top: 118 } : { left: 4, top: 4 };
  const room = Math.max(200, box.clientWidth - edge.left - 6);
  cell = Math.min(isNamed ? 26 : 8, Math.max(isNamed ? 13 : 1, Math.floor(room / wide)));
  if (!isNamed && cell < 1) cell = 1;
  const ratio = Math.max(1, Math.min(2, devicePixelRatio || 1));
  const [width, height] = [edge.left + wide * cell + 2, edge.top + high * cell + 2];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  paint(picture, high, wide, (row, column) => cellCode(data, row, column), levels);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, edge.left, edge.top, wide * cell, high * cell);
  context.strokeStyle = style("--line");
  context.strokeRect(edge.left - 0.5, edge.top - 0.5, wide * cell + 1, high * cell + 1);
  if (isNamed) {
    context.fillStyle = style("--ink");
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    facts.queries.forEach((text, row) => {
      context.fillText(text, edge.left - 6, edge.top + (row + 0.5) * cell, edge.left - 8);
    });
    context.textAlign = "left";
    for (let key = 0; key < columns; key += 1) {
      context.save();
      context.translate(edge.left + (key + 0.5) * cell, edge.top - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(keyName(key), 0, 0, edge.top - 8);
      context.restore();
    }
  }
  if (state.query !== null) {
    context.strokeStyle = style("--here");
    context.lineWidth = 2;
    const [row, key] = [Math.floor(state.query / merged), Math.floor((state.key ?? -1) / merged)];
    context.strokeRect(edge.left, edge.top + row * cell, wide * cell, Math.max(2, cell));
    if (state.key !== null) context.strokeRect(edge.left + key * cell, edge.top + row * cell, Math.max(2, cell), Math.max(2, cell));
  }
  const gradient = ramp.filter((_, n) => n % 15 === 0).map(css).join(", ");
  const bar = make("i");
  bar.style.background = `linear-gradient(to right, ${gradient})`;
  const most = make("span", { textContent: number(scale, scale === 1 ? 0 : 2) });
  legend.replaceChildren("0", bar, most, make("span", { textContent: words.shade }));
}
function cellAt(event) {
  const place = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - place.left - edge.left) / cell);
  const row = Math.floor((event.clientY - place.top - edge.top) / cell);
  return row >= 0 && column >= 0 && row < high && column < wide ? [row, column] : null;
}
function sayCell([row, column]) {
  const code = cellCode(data, row, column);
  const about = { weight: valueOf(code, levels), exact: false };
  if (isLong) {
    const range = (at, count) => `${at * merged}–${Math.min(count, (at + 1) * merged) - 1}`;
    status.textContent = `${range(row, rows)} ← ${range(column, columns)}: ${shownWeight(about)}`;
    return;
  }
  const exact = data.exact[row].find((link) => link.key === column && !isAside(row, column));
  status.textContent = `${facts.queries[row]} ← ${keyName(column)}: ${shownWeight(exact || about)}`;
}
canvas.addEventListener("pointermove", (event) => {
  const found = cellAt(event);
  if (found && data) sayCell(found);
});
canvas.addEventListener("click", (event) => {
  const found = cellAt(event);
  if (found) pickCell(found);
});
function pickCell([row, column]) {
  state.query = row * merged;
  state.key = column * merged;
  drawMatrix();
  drawRow();
  sayCell([row, column]);
}
