// One head: what is around its pictures.
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
