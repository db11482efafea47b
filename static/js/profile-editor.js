// Line numbers beside a text of code, and a way from each fault to its line.
(() => {
  for (const area of document.querySelectorAll("textarea.facet-code[data-numbered]")) {
    const gutter = document.createElement("pre");
    gutter.className = "facet-gutter";
    gutter.setAttribute("aria-hidden", "true");
    const box = document.createElement("div");
    box.className = "facet-numbered";
    area.replaceWith(box);
    box.append(gutter, area);
    const faulty = new Set([...document.querySelectorAll("[data-line]")].map((each) => each.dataset.line));
    const draw = () => {
      const count = area.value.split("\n").length;
      gutter.replaceChildren(
        ...Array.from({ length: count }, (_, index) => {
          const number = document.createElement("span");
          number.textContent = String(index + 1);
          if (faulty.has(String(index + 1))) number.className = "faulty";
          return number;
        }),
      );
      gutter.scrollTop = area.scrollTop;
    };
    new ResizeObserver(() => { gutter.style.height = `${area.offsetHeight}px`; }).observe(area);
    area.addEventListener("input", draw);
    area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
    for (const link of document.querySelectorAll("[data-line]")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        const lines = area.value.split("\n");
        const before = lines.slice(0, Number(link.dataset.line) - 1);
        const start = before.reduce((sum, line) => sum + line.length + 1, 0);
        area.focus();
        area.setSelectionRange(start, start + (lines[before.length] || "").length);
        area.scrollTop = Math.max(0, (before.length - 5) * parseFloat(getComputedStyle(area).lineHeight));
      });
    }
    draw();
  }
})();
