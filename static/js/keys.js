// Keyboard and what opens: the command palette, the list of shortcuts, disclosures that close, toasts.
// Every target is a plain link or form that works without this.
(() => {
  "use strict";
  const root = document.documentElement;
  const palette = document.getElementById("palette");
  const help = document.getElementById("shortcuts");
  const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
  if (isMac) for (const key of document.querySelectorAll("[data-modifier]")) key.textContent = key.textContent.replace("Ctrl", "⌘");

  // Single letters may be switched off: speech input and slips would trigger them.
  const LETTERS = "facet-letters";
  const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const lettersOn = () => remembered(LETTERS) !== "off";
  const box = document.querySelector("[data-letters]");
  if (box) {
    box.checked = lettersOn();
    box.addEventListener("change", () => { try { localStorage.setItem(LETTERS, box.checked ? "on" : "off"); } catch { /* not kept */ } });
  }

  const input = palette && palette.querySelector("input");
  const list = palette && palette.querySelector("[role=listbox]");
  let asked = 0;
  const options = () => [...list.querySelectorAll("a[role=option]")];
  function choose(option) {
    for (const each of options()) each.setAttribute("aria-selected", String(each === option));
    if (option) { input.setAttribute("aria-activedescendant", option.id); option.scrollIntoView({ block: "nearest" }); }
    else input.removeAttribute("aria-activedescendant");
  }
  async function ask() {
    const mine = ++asked;
    const url = `${palette.dataset.find}?part=options&q=${encodeURIComponent(input.value)}`;
    try {
      const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok || mine !== asked) return;
      list.innerHTML = await answer.text();
      choose(options()[0]);
    } catch { /* offline: what was found before stays */ }
  }
  function openPalette() {
    if (!palette || palette.open) return;
    input.value = "";
    palette.showModal();
    ask();
  }
  if (palette) {
    let timer = 0;
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 120); });
    input.addEventListener("keydown", (event) => {
      const all = options();
      const at = all.findIndex((option) => option.getAttribute("aria-selected") === "true");
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && all.length) { event.preventDefault(); choose(all[(at + step + all.length) % all.length]); }
      if (event.key === "Enter" && all[at]) { event.preventDefault(); all[at].click(); }
    });
    palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
    help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-open-palette]") && palette) { event.preventDefault(); closeAll(); openPalette(); }
    if (event.target.closest("[data-open-help]") && help) help.showModal();
    const toast = event.target.closest("[data-close-toast]");
    if (toast) toast.closest("[data-toast]").remove();
    for (const open of document.querySelectorAll("details[data-closes][open]")) if (!open.contains(event.target)) open.open = false;
  });

  function closeAll() {
    let closed = false;
    for (const open of document.querySelectorAll("details[data-closes][open]")) {
      const held = open.contains(document.activeElement);
      open.open = false;
      if (held) open.querySelector("summary").focus();
      closed = true;
    }
    return closed;
  }
  document.addEventListener("toggle", (event) => {
    const box = event.target;
    if (box.matches && box.matches("details.confirm[open]")) { const yes = box.querySelector("button"); if (yes) yes.focus(); }
  }, true);

  function move(step) {
    const rows = [...document.querySelectorAll("main table.links a.name, main .hits a.hit, main [data-row]")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    rows[Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
  }
  const single = {
    "?": () => help && help.showModal(),
    "/": () => { const field = document.querySelector("main input[type=search]"); if (field) field.focus(); else openPalette(); },
    n: () => go("n"),
    d: () => { const button = document.querySelector("[data-theme-switch]"); if (button) button.click(); },
    j: () => move(1),
    k: () => move(-1),
  };
  function go(key) {
    const link = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    if (link) location.assign(link.href);
  }
  let afterG = -Infinity;
  const typing = (node) => node.closest && node.closest("input, textarea, select, [contenteditable]") && !node.matches("[type=checkbox], [type=radio]");
  document.addEventListener("keydown", (event) => {
    const command = isMac ? event.metaKey : event.ctrlKey;
    if (command && event.key.toLowerCase() === "k") { event.preventDefault(); openPalette(); return; }
    if (command && event.key === "Enter" && event.target.form) {
      const button = event.target.form.querySelector("[data-sends]") || event.target.form.querySelector("button:not([type=button])");
      if (button) { event.preventDefault(); event.target.form.requestSubmit(button); }
      return;
    }
    if (event.key === "Escape" && closeAll()) return;
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || !lettersOn()) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.timeStamp - afterG < 1500) { afterG = -Infinity; event.preventDefault(); go(event.key); return; }
    if (event.key === "g") { afterG = event.timeStamp; return; }
    const act = single[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // Good news goes by itself; what failed, and what can be undone, stays until it is closed or long read.
  for (const toast of document.querySelectorAll("[data-toast]")) {
    if (toast.dataset.toast === "error") continue;
    let left = toast.querySelector("form") ? 20 : 8;
    const timer = setInterval(() => {
      if (toast.matches(":hover, :focus-within")) return;
      if (--left <= 0) { clearInterval(timer); toast.remove(); }
    }, 1000);
  }
  root.dataset.keys = "on";
})();
