// Packed weights, unpacked one head at a time; links of a row, the strongest first.
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
