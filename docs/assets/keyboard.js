// Code and tables that scroll sideways can be reached with the Tab key, also where there is no mouse: the theme does
// so only where there is one. Groups of buttons in code get a number, because landmarks must differ in their names.
const seen = new ResizeObserver((entries) =>
  requestAnimationFrame(() => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  }),
);

addEventListener("load", () => {
  document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap").forEach((each) => seen.observe(each));
  document.querySelectorAll(".md-code__nav").forEach((each, k) => each.setAttribute("aria-label", `Code block ${k + 1}`));
});
