"use strict";
(() => {
  const numbers = [...document.querySelectorAll("[data-e]")];
  const places = new Map();
  for (const number of numbers) {
    const key = number.dataset.e;
    places.has(key) ? places.get(key).push(number) : places.set(key, [number]);
  }
  const lines = new Map();
  for (const line of document.querySelectorAll("[data-of]")) {
    if (!lines.has(line.dataset.of)) lines.set(line.dataset.of, line);
  }
  const panel = document.getElementById("origin");
  const status = panel.querySelector("[role=status]");
  const go = panel.querySelector("[data-go]");
  let shown = null;
  let pinned = false;

  function clear() {
    for (const lit of document.querySelectorAll(".here, .part")) lit.classList.remove("here", "part");
    panel.hidden = true;
    shown = null;
    pinned = false;
  }

  /* "weights.0.0.1.0" as "weights[0,0,1,0]" */
  function name(key) {
    const [of, ...index] = key.split(".");
    return `${of}[${index.join(",")}]`;
  }

  function show(key) {
    if (key === shown) return;
    clear();
    shown = key;
    const line = lines.get(key);
    if (line) {
      const copy = line.cloneNode(true);
      copy.removeAttribute("data-of");
      for (const inner of copy.querySelectorAll("*")) {
        for (const attribute of ["tabindex", "data-e", "class"]) inner.removeAttribute(attribute);
      }
      status.replaceChildren(copy);
      for (const part of line.querySelectorAll("[data-e]")) {
        for (const place of places.get(part.dataset.e)) place.classList.add("part");
      }
    } else {
      const text = document.createElement("p");
      text.textContent = `${name(key)}: ${panel.dataset.none}`;
      status.replaceChildren(text);
    }
    for (const place of places.get(key)) {
      place.classList.remove("part");
      place.classList.add("here");
    }
    go.hidden = !line;
    panel.hidden = false;
  }

  function goToLine() {
    const line = lines.get(shown);
    if (!line) return;
    const step = line.closest("details");
    if (step) step.open = true;
    const results = line.querySelectorAll("[data-e]");
    line.scrollIntoView({ block: "center" });
    results[results.length - 1].focus({ preventScroll: true });
  }

  const numberOf = (event) => event.target.closest("main [data-e]");
  document.addEventListener("pointerover", (event) => {
    const number = numberOf(event);
    if (!pinned && event.pointerType === "mouse") number ? show(number.dataset.e) : clear();
  });
  document.addEventListener("focusin", (event) => {
    const number = numberOf(event);
    if (number) {
      show(number.dataset.e);
      pinned = true;
    }
  });
  document.addEventListener("click", (event) => {
    const number = numberOf(event);
    if (number) {
      show(number.dataset.e);
      pinned = true;
    } else if (!panel.contains(event.target)) {
      clear();
    }
  });
  go.addEventListener("click", goToLine);
  panel.querySelector("[data-close]").addEventListener("click", clear);

  /* One stop for Tab in each figure; arrow keys inside it. Small cells show their number on focus. */
  const stops = "[data-e], .dense tbody td";
  const figures = [...document.querySelectorAll("main table, main .lines")];
  for (const figure of figures) {
    figure.querySelectorAll(stops).forEach((number, at) => { number.tabIndex = at ? -1 : 0; });
  }
  /* A table with numbers to focus scrolls with them. */
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.querySelector(stops)) box.removeAttribute("tabindex");
  }
  function neighbour(number, key) {
    const row = number.closest("tr, p");
    const own = [...row.querySelectorAll(stops)];
    const at = own.indexOf(number);
    if (key === "ArrowLeft") return own[at - 1];
    if (key === "ArrowRight") return own[at + 1];
    if (key === "Home") return own[0];
    if (key === "End") return own[own.length - 1];
    let next = row;
    do {
      next = key === "ArrowUp" ? next.previousElementSibling : next.nextElementSibling;
    } while (next && !next.querySelector(stops));
    if (!next) return null;
    const others = next.querySelectorAll(stops);
    return others[Math.min(at, others.length - 1)];
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return clear();
    const number = event.target.closest("main :is([data-e], .dense tbody td)");
    if (!number) return;
    if (event.key === "Enter" && number.dataset.e) {
      show(number.dataset.e);
      return goToLine();
    }
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const next = neighbour(number, event.key);
    if (!next) return;
    for (const other of number.closest("table, .lines").querySelectorAll(stops)) other.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  const steps = document.querySelectorAll("details.step");
  const controls = document.querySelector(".controls");
  if (controls) {
    controls.hidden = false;
    for (const button of controls.querySelectorAll("[data-fold]")) {
      button.addEventListener("click", () => {
        for (const step of steps) step.open = Boolean(button.dataset.fold);
      });
    }
  }
  addEventListener("hashchange", unfold);
  unfold();
  function unfold() {
    const step = document.getElementById(location.hash.slice(1));
    if (step && step.matches("details.step")) step.open = true;
  }
  addEventListener("beforeprint", () => { for (const step of steps) step.open = true; });
})();
