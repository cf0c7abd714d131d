// Sorting, filtering, choosing and saving. The page is complete without it. What it shows it writes as textContent.
"use strict";

function make(tag, text, parent) {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.append(element);
  return element;
}

// One figure of a set at a time, by buttons.
function addChooser(set) {
  const figures = [...set.querySelectorAll("figure[data-choice]")];
  if (figures.length < 2) return;
  const bar = document.createElement("div");
  bar.className = "chooser";
  make("span", set.dataset.label, bar);
  const buttons = figures.map((figure) => make("button", figure.dataset.choice, bar));
  const show = (chosen) => {
    figures.forEach((figure, i) => {
      figure.hidden = i !== chosen;
      buttons[i].setAttribute("aria-pressed", String(i === chosen));
    });
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => show(i)));
  figures.forEach((figure) => { figure.querySelector(".choice").hidden = true; });
  figures[0].before(bar);
  show(Math.max(0, figures.findIndex((figure) => figure.dataset.choice === set.dataset.first)));
}

// A drawing takes its looks from the page's style sheet; a picture has to carry them itself.
const LOOKS = ["color", "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap",
  "font-family", "font-size", "font-weight", "text-anchor", "paint-order"];

function withLooks(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const look of LOOKS) to[i].setAttribute(look, style.getPropertyValue(look));
    to[i].removeAttribute("class");
  });
  return copy;
}

function savePng(figure, button) {
  const svg = figure.querySelector("svg");
  const box = svg.viewBox.baseVal;
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = box.width * 2;
    canvas.height = box.height * 2;
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.documentElement).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const link = document.createElement("a");
    link.download = figure.dataset.name + ".png";
    link.href = canvas.toDataURL("image/png");
    button.dataset.bytes = String(link.href.length);
    link.click();
  };
  image.onerror = () => { button.textContent = "this browser cannot draw it"; };
  const drawing = new XMLSerializer().serializeToString(withLooks(svg));
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(drawing);
}

function addPng(figure) {
  const button = make("button", "save as PNG", figure);
  button.className = "png";
  button.addEventListener("click", () => savePng(figure, button));
}

// Empty cells come last either way.
function compare(a, b, column, sign) {
  const x = a.cells[column], y = b.cells[column];
  const empty = (x.textContent === "") - (y.textContent === "");
  if (empty !== 0) return empty;
  if (x.dataset.v !== undefined && y.dataset.v !== undefined) return sign * (Number(x.dataset.v) - Number(y.dataset.v));
  return sign * x.textContent.localeCompare(y.textContent, "en", { numeric: true });
}

function addSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      // numbers begin with the largest, words with the first
      const numbers = [...body.rows].some((row) => row.cells[column].dataset.v !== undefined);
      const now = head.getAttribute("aria-sort");
      const up = now === null ? !numbers : now !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.replaceChildren(...[...body.rows].sort((a, b) => compare(a, b, column, up ? 1 : -1)));
    });
  });
}

function addFilters(table) {
  const bar = document.createElement("div");
  bar.className = "chooser";
  const rows = [...table.tBodies[0].rows];
  const filters = [];
  const count = document.createElement("span");
  const apply = () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = filters.some(([column, select]) => select.value !== "" &&
                                                      row.cells[column].textContent !== select.value);
      if (!row.hidden) shown += 1;
    }
    count.textContent = shown + " of " + rows.length + " rows";
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!("filter" in head.dataset)) return;
    const values = [...new Set(rows.map((row) => row.cells[column].textContent))];
    if (values.length < 2) return;
    const select = document.createElement("select");
    select.setAttribute("aria-label", head.textContent);
    make("option", "every " + head.textContent, select).value = "";
    values.forEach((value) => { make("option", value, select).value = value; });
    select.addEventListener("change", apply);
    filters.push([column, select]);
    bar.append(select);
  });
  bar.append(count);
  apply();
  table.parentElement.before(bar);
}

function addAnswerFilter(list) {
  const items = [...list.children];
  const values = [...new Set(items.map((item) => item.dataset.policy))];
  if (values.length < 2) return;
  const bar = document.createElement("div");
  bar.className = "chooser";
  const select = document.createElement("select");
  select.setAttribute("aria-label", "policy");
  make("option", "every policy", select).value = "";
  values.forEach((value) => { make("option", value, select).value = value; });
  select.addEventListener("change", () => {
    items.forEach((item) => { item.hidden = select.value !== "" && item.dataset.policy !== select.value; });
  });
  bar.append(select);
  list.before(bar);
}

document.querySelectorAll(".set").forEach(addChooser);
document.querySelectorAll("figure").forEach(addPng);
document.querySelectorAll("table.sortable").forEach((table) => { addFilters(table); addSorting(table); });
document.querySelectorAll(".answers").forEach(addAnswerFilter);
