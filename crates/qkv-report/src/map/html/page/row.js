// The chosen row in words, and q·k term by term.
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
