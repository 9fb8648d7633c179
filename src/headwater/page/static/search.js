// The search box: suggestions while typing; "/" comes here from anywhere, the arrow keys choose, Escape leaves.

const input = document.getElementById("search");
const list = document.getElementById("found");
let wanted = "";
let timer = 0;

function choose(step) {
  const options = [...list.children];
  if (!options.length) return;
  const at = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
  const next = (at + step + options.length) % options.length;
  options.forEach((option, index) => option.setAttribute("aria-selected", String(index === next)));
  input.setAttribute("aria-activedescendant", options[next].id);
  options[next].scrollIntoView({ block: "nearest" });
}

function hide() {
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

function option(hit, index) {
  const item = document.createElement("li");
  item.id = `found-${index}`;
  item.role = "option";
  item.setAttribute("aria-selected", "false");
  const link = document.createElement("a");
  link.href = hit.href;
  link.tabIndex = -1;
  const kind = document.createElement("span");
  kind.className = "tag";
  kind.textContent = hit.kind;
  const name = document.createElement("b");
  name.textContent = hit.title;
  const place = document.createElement("small");
  place.textContent = hit.place;
  const words = document.createElement("span");
  words.append(name, place);
  link.append(kind, words);
  item.append(link);
  return item;
}

async function suggest() {
  const text = input.value.trim();
  if (text === wanted) return;
  wanted = text;
  if (!text) return hide();
  const answer = await fetch(`/search.json?limit=12&q=${encodeURIComponent(text)}`);
  if (!answer.ok || text !== wanted) return;
  const hits = await answer.json();
  list.replaceChildren(...hits.map(option));
  if (!hits.length) {
    const none = document.createElement("li");
    none.className = "muted";
    none.textContent = "Nothing in the graph has that in its name.";
    list.append(none);
  }
  list.hidden = false;
  input.setAttribute("aria-expanded", "true");
}

input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(suggest, 120);
});
input.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    choose(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter") {
    const link = list.hidden ? null : list.querySelector('[aria-selected="true"] a');
    if (link) {
      event.preventDefault();
      link.click();
    }
  } else if (event.key === "Escape") {
    hide();
    input.value = wanted = "";
    input.blur();
  }
});
input.addEventListener("blur", () => setTimeout(hide, 200));
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    input.focus();
    input.select();
  }
});
