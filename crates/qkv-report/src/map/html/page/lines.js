// Lines between tokens: only what is in sight is there.
const sheet = make("div", { className: "sheet" });
const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
svg.setAttribute("aria-hidden", "true");
const queries = make("div", { className: "names q" });
const keys = make("div", { className: "names k" });
sheet.append(queries, svg, keys);
function name(text, at, chosen) {
  const element = make("div", { className: "name" }, ...parted(text));
  element.style.top = `${at * ROW}px`;
  if (chosen) element.classList.add("chosen");
  return element;
}
function drawLines() {
  if (sheet.parentNode !== box) {
    box.replaceChildren(sheet);
    box.scrollTop = Math.max(0, (state.query ?? 0) * ROW - box.clientHeight / 2);
  }
  sheet.style.height = `${Math.max(rows, columns) * ROW}px`;
  const width = sheet.clientWidth;
  const side = queries.clientWidth;
  svg.style.left = `${side}px`;
  svg.setAttribute("width", Math.max(10, width - 2 * side));
  svg.setAttribute("height", Math.max(rows, columns) * ROW);
  const across = Math.max(10, width - 2 * side);
  const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
  const to = Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 4;
  const chosen = state.query === null ? null : linksOf(data, state.query);
  const strength = new Map((chosen || []).map((link) => [link.key, link.weight]));
  queries.replaceChildren();
  keys.replaceChildren();
  svg.replaceChildren();
  for (let row = from; row < Math.min(rows, to); row += 1) {
    const element = name(facts.queries[row], row, row === state.query);
    element.dataset.row = row;
    queries.append(element);
  }
  for (let key = from; key < Math.min(columns, to); key += 1) {
    const element = name(keyName(key), key, false);
    const weight = strength.get(key);
    if (weight) {
      const step = Math.min(8, Math.max(1, Math.round(Math.sqrt(weight / scale) * 8)));
      element.classList.add(Number.isNaN(weight) ? "hn" : `h${step}`);
    }
    keys.append(element);
  }
  const drawn = [];
  if (chosen) drawn.push([state.query, chosen]);
  else for (let row = from; row < Math.min(rows, to); row += 1) drawn.push([row, linksOf(data, row)]);
  for (const [row, links] of drawn) {
    for (const link of links.slice(0, chosen ? 64 : MOST_LINKS)) {
      const share = link.weight / scale;
      if (!(share >= FAINTEST)) continue;
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      const set = { x1: 0, y1: (row + 0.5) * ROW, x2: across, y2: (link.key + 0.5) * ROW };
      for (const [attribute, value] of Object.entries(set)) line.setAttribute(attribute, value);
      line.setAttribute("stroke-width", 1 + 2.5 * share);
      line.setAttribute("stroke-opacity", Math.max(0.08, share));
      svg.append(line);
    }
  }
  legend.replaceChildren();
}
let waiting = false;
box.addEventListener("scroll", () => {
  if (waiting || state.view !== "lines") return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (state.view === "lines" && data) drawLines();
  });
});
queries.addEventListener("pointerover", (event) => {
  const element = event.target.closest(".name");
  if (element && event.pointerType === "mouse") chooseRow(Number(element.dataset.row));
});
queries.addEventListener("click", (event) => {
  const element = event.target.closest(".name");
  if (element) chooseRow(Number(element.dataset.row));
});
function chooseRow(row, key) {
  if (row === state.query && (key === undefined || key === state.key)) return;
  state.query = row;
  state.key = key ?? null;
  if (state.view === "lines") drawLines();
  drawRow();
}
