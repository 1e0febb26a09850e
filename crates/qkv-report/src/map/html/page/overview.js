// All layers and heads.
const all = document.getElementById("all");
let thumbs = null;
const shownSelect = make("select");
for (const name of ["pattern", "entropy", "distance", "first", "previous", "own"]) {
  const has = name === "pattern" || facts.statistics[name].some((value) => value !== null);
  if (has) shownSelect.append(make("option", { value: name, textContent: words[name] }));
}
shownSelect.addEventListener("change", () => {
  state.shown = shownSelect.value;
  drawGrid();
});
const asideBox = make("input", { type: "checkbox", checked: state.aside });
asideBox.addEventListener("change", () => {
  state.aside = asideBox.checked;
  drawGrid();
  drawHead();
});
all.append(
  make("p", {}, make("label", {}, words.colour, " ", shownSelect)),
  make("p", {}, make("label", {}, asideBox, words.set_aside)),
);
const table = make("table", { className: "grid" });
function buildGrid() {
  const top = make("thead");
  if (facts.shared.some((shared) => shared)) {
    const line = make("tr", {}, make("td"));
    let at = 0;
    while (at < facts.heads.length) {
      let end = at;
      while (end < facts.heads.length && facts.kv[end] === facts.kv[at]) end += 1;
      const text = fill(words.kv, { k: facts.kv[at] });
      line.append(make("th", { colSpan: end - at, scope: "colgroup", className: "share", textContent: text }));
      at = end;
    }
    top.append(line);
  }
  const line = make("tr", {}, make("td"));
  for (const head of facts.heads) {
    line.append(make("th", { scope: "col", title: fill(words.head, { h: head }), textContent: head }));
  }
  top.append(line);
  const body = make("tbody");
  facts.layers.forEach((layer, down) => {
    const label = { scope: "row", title: fill(words.layer, { l: layer }), textContent: layer };
    const row = make("tr", {}, make("th", label));
    facts.heads.forEach((_, across) => {
      const index = down * facts.heads.length + across;
      const button = make("button", { type: "button", tabIndex: -1 });
      button.addEventListener("click", () => choose(index));
      grid.push(button);
      row.append(make("td", {}, button));
    });
    body.append(row);
  });
  table.append(top, body);
  table.addEventListener("keydown", (event) => {
    const at = grid.indexOf(event.target);
    const across = facts.heads.length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    const next = { Home: 0, End: grid.length - 1 }[event.key] ?? at + steps[event.key];
    if (at < 0 || !grid[next]) return;
    event.preventDefault();
    grid.forEach((button) => { button.tabIndex = -1; });
    grid[next].tabIndex = 0;
    grid[next].focus();
  });
  const scroll = { className: "scroll", role: "group", "aria-labelledby": "all-title" };
  all.append(make("div", scroll, table), make("p", { className: "soft", textContent: words.grid_help }));
}
function drawGrid() {
  const values = facts.statistics[state.shown];
  const known = (values || []).filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  const times = Math.max(1, Math.ceil(Math.max(rows, columns) / facts.thumb));
  const [tall, broad] = [Math.ceil(rows / times), Math.ceil(columns / times)];
  const each = tall * broad + tall;
  grid.forEach((button, index) => {
    const value = values ? values[index] : null;
    const { layer, head } = heads[index];
    const says = values ? `: ${words[state.shown]} ${number(value)}` : "";
    const text = fill(words.one_head, { l: layer, h: head }) + says;
    button.title = text;
    button.setAttribute("aria-label", text);
    button.setAttribute("aria-current", String(index === state.head));
    if (values) {
      button.replaceChildren();
      button.style.background = value === null ? "" : css(ramp[Math.round((Math.max(0, value) / most) * 255)]);
      return;
    }
    button.style.background = "";
    const canvas = button.firstElementChild || button.appendChild(make("canvas"));
    const own = thumbs.subarray(index * each, (index + 1) * each);
    const column = Math.floor(first / times);
    paint(canvas, tall, broad, (row, at) => {
      const code = own[row * broad + at];
      return !state.aside && at === column ? Math.max(code, own[tall * broad + row]) : code;
    }, facts.thumb_levels);
  });
}
