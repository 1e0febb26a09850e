// What the page says about itself, and small helpers.
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
/** A number and a label, each in its own direction of writing. */
function parted(text) {
  const [digits, ...rest] = text.split(" ");
  return [make("small", { textContent: digits }), " ", make("bdi", { textContent: rest.join(" ") })];
}
