// What every page does beyond HTML: times in the viewer's zone, copying, theme, live updates, log tails.
// Nothing here is needed for reading or submitting.
(() => {
  "use strict";
  const root = document.documentElement;
  const lang = root.lang || "en";
  // The zone a person chose on the account page; one this browser does not know is as if none were chosen.
  const chosen = /(?:^|; )facet_zone=([^;]+)/.exec(document.cookie);
  let zone = {};
  try { if (chosen) { zone = { timeZone: decodeURIComponent(chosen[1]).replace(/^"|"$/g, "") }; new Intl.DateTimeFormat(lang, zone); } } catch { zone = {}; }
  const day = new Intl.DateTimeFormat(lang, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false, ...zone });
  const full = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium", hour12: false, ...zone });
  const clock = new Intl.DateTimeFormat(lang, { timeStyle: "medium", hour12: false, ...zone });
  const short = new Intl.DateTimeFormat(lang, { hour: "2-digit", minute: "2-digit", hour12: false, ...zone });
  const relative = new Intl.RelativeTimeFormat(lang, { numeric: "auto", style: "short" });

  function ago(at) {
    const s = (at - Date.now()) / 1000;
    const size = Math.abs(s);
    if (size < 60) return relative.format(Math.trunc(s), "second");
    if (size < 3600) return relative.format(Math.trunc(s / 60), "minute");
    if (size < 86400) return relative.format(Math.trunc(s / 3600), "hour");
    return size < 864000 ? relative.format(Math.trunc(s / 86400), "day") : day.format(at);
  }
  const styles = { ago, full: (at) => full.format(at), clock: (at) => clock.format(at), hm: (at) => short.format(at), day: (at) => day.format(at) };

  function tell(time) {
    const at = new Date(time.dateTime);
    const said = (styles[time.dataset.moment] || styles.full)(at);
    if (time.textContent !== said) time.textContent = said;
  }
  function reveal(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    for (const time of node.querySelectorAll("time[data-moment]")) tell(time);
    for (const button of node.querySelectorAll("[data-copy][hidden], [data-needs-js][hidden]")) button.hidden = false;
  }
  // Swaps write UTC; the observer runs before the next paint, so nobody sees it.
  new MutationObserver((changes) => {
    for (const change of changes) {
      const node = change.target.nodeType === Node.TEXT_NODE ? change.target.parentElement : change.target;
      if (node && node.matches("time[data-moment]")) tell(node);
      else if (node) reveal(node);
    }
  }).observe(document.body, { childList: true, characterData: true, subtree: true });
  reveal(document.body);
  setInterval(() => {
    if (!document.hidden) for (const time of document.querySelectorAll('time[data-moment="ago"]')) tell(time);
  }, 1000);

  const spoken = document.getElementById("spoken");
  const say = (words) => { if (spoken) spoken.textContent = words; };

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      try {
        await navigator.clipboard.writeText(copy.dataset.copy);
        const icon = copy.querySelector("use");
        const before = icon.getAttribute("href");
        icon.setAttribute("href", before.replace(/#.*$/, "#check"));
        say(root.dataset.saidCopied || "Copied");
        setTimeout(() => icon.setAttribute("href", before), 1500);
      } catch { say(root.dataset.saidNotCopied || "Could not copy"); }
    }
    if (event.target.closest("[data-theme-switch]")) {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("facet-theme", root.dataset.theme); } catch { /* not kept, still switched */ }
    }
  });

  // Live: the event stream only says that something changed; parts then fetch themselves anew.
  let pending = null;
  const changed = () => {
    if (pending) return;
    pending = setTimeout(() => { pending = null; document.body.dispatchEvent(new CustomEvent("facet:changed")); }, 350);
  };
  document.addEventListener("htmx:sse:before:message", (event) => { event.preventDefault(); changed(); });
  document.addEventListener("htmx:sse:after:connection", () => { root.dataset.live = "on"; });
  document.addEventListener("htmx:sse:error", () => { root.dataset.live = "off"; });
  document.addEventListener("htmx:sse:close", () => { root.dataset.live = "off"; });

  // Log tails stay at their end while the reader is there; new events flash once.
  let newest = Math.max(0, ...[...document.querySelectorAll("[data-seq]")].map((row) => Number(row.dataset.seq)));
  let places = new Map();
  const atEnd = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  const toEnd = (log) => { log.scrollTop = log.scrollHeight; };
  document.querySelectorAll("pre.log").forEach(toEnd);
  document.addEventListener("htmx:before:swap", () => {
    places = new Map([...document.querySelectorAll("pre.log")].map((log) => [log.id, atEnd(log) ? null : log.scrollTop]));
  });
  document.addEventListener("htmx:after:swap", () => {
    for (const log of document.querySelectorAll("pre.log")) {
      const place = places.get(log.id);
      if (typeof place === "number") log.scrollTop = place; else toEnd(log);
    }
    let seen = newest;
    for (const row of document.querySelectorAll("[data-seq]")) {
      const seq = Number(row.dataset.seq);
      if (seq > newest && newest > 0) row.classList.add("is-new");
      seen = Math.max(seen, seq);
    }
    newest = seen;
  });
})();
