// Names for what the admin's widgets leave nameless to those who do not see them: a select2 box is named by
// its own text, which is nothing while it is empty; a tooltip has no role. They are made at load: this comes after.
document.addEventListener("DOMContentLoaded", () => window.addEventListener("load", () => {
  for (const select of document.querySelectorAll("select.select2-hidden-accessible")) {
    const label = select.labels[0];
    if (!label) continue;
    const words = label.textContent.trim().replace(/\s*\*$/, "");
    for (const box of select.parentElement.querySelectorAll(".select2-selection, .select2-selection__rendered")) {
      box.removeAttribute("aria-labelledby");
      box.setAttribute("aria-label", words);
    }
  }
  for (const tooltip of document.querySelectorAll("span.help-tooltip[aria-label]")) tooltip.setAttribute("role", "img");
}));
