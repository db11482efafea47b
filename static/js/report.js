// The report of a task on paper: the browser prints the page, whose print sheet leaves out what only a screen needs.
(() => {
  "use strict";
  document.addEventListener("click", (event) => { if (event.target.closest("[data-print]")) window.print(); });
})();
