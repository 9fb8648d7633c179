// The search box: suggestions while typing; "/" focuses it, the arrow keys select, Escape closes it.

const input = document.getElementById("search");
const list = document.getElementById("suggestions");
let wanted = "";
let timer = 0;

function select(step) {
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

function option(result, index) {
  const item = document.createElement("li");
  item.id = `suggestion-${index}`;
  item.role = "option";
  item.setAttribute("aria-selected", "false");
  const link = document.createElement("a");
  link.href = result.href;
  link.tabIndex = -1;
  const kind = document.createElement("span");
  kind.className = "tag";
  kind.textContent = result.kind;
  const name = document.createElement("b");
  name.textContent = result.title;
  const place = document.createElement("small");
  place.textContent = result.place;
  const label = document.createElement("span");
  label.append(name, place);
  link.append(kind, label);
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
  const results = await answer.json();
  list.replaceChildren(...results.map(option));
  if (!results.length) {
    const none = document.createElement("li");
    none.className = "muted";
    none.textContent = "No name in the graph contains this text.";
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
    select(event.key === "ArrowDown" ? 1 : -1);
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
