// One head at a time, unpacked when it is asked for. Nothing here asks for anything from outside.
(() => {
  "use strict";
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const words = facts.words;
  const { rows, columns, merged, levels, scale, first } = facts;
  const ROW = 22;
  const MOST_LINKS = 12;
  const FAINTEST = 0.01;
  const NAN = 255;
  const isLong = merged > 1;
  const high = Math.ceil(rows / merged);
  const wide = Math.ceil(columns / merged);
  const state = { head: 0, query: null, key: null, view: "lines", aside: facts.aside, shown: "pattern" };
  const grid = [];
  const heads = [];
  facts.layers.forEach((layer) => facts.heads.forEach((head, at) => heads.push({ layer, head, at })));

  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const named = (index) => `L${heads[index].layer}H${heads[index].head}`;
  const keyName = (key) => `${key} ${facts.keys[key]}`;
  const number = (value, digits = 4) =>
    value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.includes("-") || name === "role") element.setAttribute(name, value);
      else element[name] = value;
    }
    element.append(...children);
    return element;
  }

  // --- numbers -----------------------------------------------------------------------------------
  function bytesOf(id) {
    const element = document.getElementById(id);
    if (!element) return null;
    const text = element.textContent;
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
    return bytes;
  }
  async function unpack(id) {
    const stream = new Blob([bytesOf(id)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const valueOf = (code, most) => (code === NAN ? NaN : (code / most) ** 2 * scale);

  const unpacked = new Map();
  async function load(index) {
    if (unpacked.has(index)) return unpacked.get(index);
    const bytes = await unpack(`w${index}`);
    const cells = bytes.subarray(0, high * wide);
    const firsts = bytes.subarray(high * wide, high * wide + rows);
    const view = new DataView(bytes.buffer, high * wide + rows);
    const exact = [];
    for (let row = 0; row < rows; row += 1) {
      const links = [];
      for (let n = 0; n < facts.exact; n += 1) {
        const at = (row * facts.exact + n) * 4;
        const key = view.getUint16(at, true);
        const part = view.getUint16(at + 2, true);
        if (key === 65535) continue;
        links.push({ key, weight: part === 65535 ? NaN : (part / facts.parts) * scale, exact: true });
      }
      exact.push(links);
    }
    const data = { cells, firsts, exact };
    if (unpacked.size > 8) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(index, data);
    return data;
  }
  const isAside = (row, key) => state.aside && key === first && facts.own[row] !== first;

  /** The code of a cell, with the first key where it is not set aside. */
  function cellCode(data, down, across) {
    let most = data.cells[down * wide + across];
    if (state.aside || across !== Math.floor(first / merged)) return most;
    for (let row = down * merged; row < Math.min(rows, (down + 1) * merged); row += 1) {
      most = Math.max(most, data.firsts[row]);
    }
    return most;
  }

  /** The links of a row, the strongest first. */
  function linksOf(data, row) {
    const found = new Map();
    if (!isLong) {
      for (let key = 0; key < columns; key += 1) {
        const code = key === first ? Math.max(data.firsts[row], data.cells[row * wide + key]) : data.cells[row * wide + key];
        if (code) found.set(key, { key, weight: valueOf(code, levels), exact: false });
      }
    }
    for (const link of data.exact[row]) found.set(link.key, link);
    const size = (link) => (Number.isNaN(link.weight) ? Infinity : link.weight);
    return [...found.values()]
      .filter((link) => !isAside(row, link.key))
      .sort((a, b) => size(b) - size(a));
  }
  function shownWeight(link) {
    if (Number.isNaN(link.weight)) return words.not_a_number;
    if (link.exact) return number(link.weight);
    return fill(words.about, { w: link.weight ? link.weight.toPrecision(2) : "0" });
  }

  // --- colours -----------------------------------------------------------------------------------
  let ramp = [];
  let alarm = [0, 0, 0];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  function readColours() {
    const stops = Array.from({ length: 9 }, (_, n) => rgb(style(`--h${n}`)));
    ramp = Array.from({ length: 256 }, (_, n) => {
      const at = Math.min(7.999, (n / 255) * 8);
      const [low, high] = [stops[Math.floor(at)], stops[Math.floor(at) + 1]];
      return low.map((c, i) => Math.round(c + (high[i] - c) * (at % 1)));
    });
    alarm = rgb(style("--alarm"));
  }
  const css = (colour) => `rgb(${colour.join(" ")})`;
  function paint(canvas, high, wide, code, most) {
    canvas.width = wide;
    canvas.height = high;
    const context = canvas.getContext("2d");
    const image = context.createImageData(wide, high);
    for (let row = 0; row < high; row += 1) {
      for (let column = 0; column < wide; column += 1) {
        const c = code(row, column);
        const colour = c === NAN ? alarm : ramp[Math.min(255, Math.round((c / most) * 255))];
        const at = (row * wide + column) * 4;
        image.data.set(colour, at);
        image.data[at + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }

  // --- overview ----------------------------------------------------------------------------------
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

  // --- one head ----------------------------------------------------------------------------------
  const one = document.getElementById("one");
  const title = document.getElementById("one-title");
  const shared = make("p");
  const before = make("button", { type: "button", textContent: `← ${words.before}` });
  const after = make("button", { type: "button", textContent: `${words.after} →` });
  before.addEventListener("click", () => choose((state.head + grid.length - 1) % grid.length));
  after.addEventListener("click", () => choose((state.head + 1) % grid.length));
  const views = ["lines", "matrix"].map((view) => {
    const button = make("button", { type: "button", textContent: words[view] });
    button.addEventListener("click", () => {
      state.view = view;
      drawHead();
    });
    return button;
  });
  const help = make("p", { className: "soft" });
  const sides = make("div", { className: "heads" }, make("span"), make("span"));
  const box = make("div", { className: "view", tabIndex: 0, role: "application" });
  const status = make("p", { className: "status", role: "status" });
  const legend = make("div", { className: "legend" });
  const rounded = make("p", { className: "soft" });
  const details = make("div");
  const terms = make("div");
  one.append(
    shared, make("div", { className: "bar" }, before, after, ...views),
    help, sides, box, status, legend, details, terms, rounded,
  );
  let data = null;

  async function choose(index, keep) {
    state.head = index;
    grid.forEach((button, at) => {
      button.setAttribute("aria-current", String(at === index));
      button.tabIndex = at === index ? 0 : -1;
    });
    if (!keep) history.replaceState(null, "", `#${named(index)}`);
    try {
      data = await load(index);
    } catch (error) {
      status.textContent = words.old_browser;
      throw error;
    }
    drawHead();
  }
  function drawHead() {
    if (!data) return;
    const { layer, head, at } = heads[state.head];
    title.textContent = fill(words.one_head, { l: layer, h: head });
    const others = (facts.shared[at] || []).filter((other) => other !== head);
    shared.textContent = facts.shared[at]
      ? fill(words.shared, { k: facts.kv[at], s: others.join(", ") || "–" })
      : "";
    shared.hidden = !facts.shared[at];
    views.forEach((button, n) => {
      button.setAttribute("aria-pressed", String(["lines", "matrix"][n] === state.view));
    });
    help.textContent = state.view === "lines" ? words.pick_query : words.pick_cell;
    sides.hidden = state.view !== "lines";
    sides.firstElementChild.textContent = words.queries;
    sides.lastElementChild.textContent = facts.shared[at] ? fill(words.keys_of_kv, { k: facts.kv[at] }) : words.keys;
    box.setAttribute("aria-label", `${title.textContent}, ${words[state.view]}`);
    const error = facts.error.toPrecision(1);
    rounded.textContent = fill(words.rounded, { k: facts.exact, e: error });
    if (isLong) rounded.textContent += ` ${fill(words.merged, { n: merged })}`;
    if (state.view === "lines") drawLines();
    else drawMatrix();
    drawRow();
  }

  // Lines: only what is in sight is there.
  const sheet = make("div", { className: "sheet" });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  const queries = make("div", { className: "names q" });
  const keys = make("div", { className: "names k" });
  sheet.append(queries, svg, keys);
  /** A number and a label, each in its own direction of writing. */
  function parted(text) {
    const [digits, ...rest] = text.split(" ");
    return [make("small", { textContent: digits }), " ", make("bdi", { textContent: rest.join(" ") })];
  }
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

  // The row in words.
  function drawRow() {
    details.replaceChildren();
    terms.replaceChildren();
    status.textContent = "";
    if (state.query === null) return;
    const links = linksOf(data, state.query).slice(0, isLong ? facts.exact : 10);
    details.append(make("h3", {}, `${words.query} `, ...parted(facts.queries[state.query])));
    if (!links.length) {
      details.append(make("p", { textContent: words.nothing }));
      return;
    }
    const body = make("tbody");
    for (const link of links) {
      const bar = make("div", { className: "fill" });
      bar.style.width = `${Math.min(100, (link.weight / scale) * 100) || 0}%`;
      const line = make("tr", {},
        make("th", { scope: "row" }, ...parted(keyName(link.key))),
        make("td", { textContent: shownWeight(link) }), make("td", {}, bar));
      if (facts.vectors) {
        const button = make("button", { type: "button", textContent: "q·k" });
        button.setAttribute("aria-label", `${words.terms}: ${keyName(link.key)}`);
        button.addEventListener("click", () => drawTerms(link));
        line.append(make("td", {}, button));
      }
      body.append(line);
    }
    const head = make("tr", {}, make("th", { scope: "col", textContent: words.keys }),
      make("th", { scope: "col", textContent: words.weight }), make("td"));
    details.append(make("div", { className: "scroll" }, make("table", { className: "links" }, make("thead", {}, head), body)));
    const picked = links.find((link) => link.key === state.key);
    if (picked && facts.vectors) drawTerms(picked);
    if (!facts.vectors) terms.append(make("p", { className: "soft", textContent: words.terms_missing }));
  }
  function vector(letter, layer, head, row) {
    const bytes = bytesOf(`${letter}${layer}-${head}`);
    return new Float32Array(bytes.buffer, bytes.byteOffset + row * facts.width * 4, facts.width);
  }
  function drawTerms(link) {
    const { layer, head, at } = heads[state.head];
    const q = vector("q", layer, head, state.query);
    const k = vector("k", layer, facts.kv[at], link.key);
    let sum = 0;
    const body = make("tbody");
    q.forEach((value, column) => {
      const product = value * k[column];
      sum += product;
      body.append(make("tr", {}, make("th", { scope: "row", textContent: column }),
        ...[value, k[column], product, sum].map((n) => make("td", { textContent: number(n) }))));
    });
    const names = [words.terms_column, "q", "k", words.terms_product, words.terms_running];
    const top = make("tr", {}, ...names.map((text) => make("th", { scope: "col", textContent: text })));
    const says = { q: facts.queries[state.query], k: keyName(link.key), n: facts.width };
    const results = [`${words.terms_sum} = ${number(sum)}`];
    if (facts.factor !== null) {
      const scaled = sum * facts.factor;
      results.push(`${fill(words.terms_scaled, { s: number(facts.factor) })} = ${number(scaled)}`);
    }
    results.push(`${words.terms_weight}: ${shownWeight(link)}`);
    const box = { className: "scroll terms", tabIndex: 0, role: "group", "aria-label": words.terms };
    terms.replaceChildren(
      make("h3", { textContent: words.terms }),
      make("p", { textContent: fill(words.terms_say, says) }),
      make("div", box, make("table", {}, make("thead", {}, top), body)),
      ...results.map((text) => make("p", { textContent: text })),
    );
  }

  // --- beginning ---------------------------------------------------------------------------------
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
})();
